// Bodies of the control frames. PROTOCOL.md section 4 is the normative text: fields in this order, sizes as
// the types say.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "wire/body.h"
#include "wire/frame.h"

namespace sluice::wire {

inline constexpr uint32_t kNoRank = 0xffffffff;
inline constexpr uint32_t kMaxRanks = 2048;  // 256 groups of eight: what one finishing fold takes
inline constexpr uint16_t kMaxReducers = 1024;
inline constexpr uint16_t kMaxViewChange = 512;  // reducers removed, or added, at once: fits VIEW_QUERY
inline constexpr uint16_t kMaxLanes = 64;        // lane connections of one rank to one reducer
inline constexpr size_t kMaxJobText = 128;
inline constexpr size_t kMaxErrorText = 1024;
inline constexpr size_t kMaxStatusText = kMaxControlPayload - 2;
inline constexpr size_t kMaxNamedRanks = 16;
inline constexpr size_t kMaxAddresses = 4000;
inline constexpr size_t kMaxPairAddress = 64;
inline constexpr size_t kMaxWhy = 256;

// Feature bits of HELLO and WELCOME.
inline constexpr uint64_t kFeatureResume = uint64_t{1} << 0;
inline constexpr uint64_t kFeatureViewChange = uint64_t{1} << 1;
inline constexpr uint64_t kFeatureTls = uint64_t{1} << 2;   // what follows WELCOME goes through TLS
inline constexpr uint64_t kFeatureRdma = uint64_t{1} << 4;  // PAIR follows ATTACHED on lane connections
// Of point-to-point streams: PAIR follows STREAM_ANSWER; and a stream without a queue pair is not taken.
inline constexpr uint64_t kStreamRdma = kFeatureRdma;
inline constexpr uint64_t kStreamRdmaAlone = uint64_t{1} << 5;
inline constexpr uint64_t kFeaturesSurvive = kFeatureResume | kFeatureViewChange;  // both or none

using Nonce = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;

enum class Purpose : uint8_t { kControl = 0, kLane = 1, kStatus = 2, kVerdict = 3 };

// First frame of every connection. Its layout never changes: versions are negotiated by it. A newer peer may
// append fields.
struct Hello {
  static constexpr FrameType kType = FrameType::kHello;
  static constexpr bool kMayGrow = true;
  uint8_t min_version = kVersionMin;
  uint8_t max_version = kVersionMax;
  Purpose purpose = Purpose::kControl;
  uint8_t reserved = 0;
  uint32_t rank = 0;
  uint32_t ranks = 0;  // n
  uint32_t lane = 0;   // purpose kLane: which of the rank's lane connections to this reducer
  SessionId session{};
  uint64_t incarnation = 0;  // 0 before commit
  uint64_t features = 0;
  Nonce nonce{};
  std::string job{};               // the job id the token was made for; "" = "default"
  std::string tenant{};            // whose share and memory it counts for; "" = the job's
  std::vector<std::byte> later{};  // what a newer peer appended, kept since proofs cover bodies as sent
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.min_version), v(m.max_version), v(m.purpose), v(m.reserved), v(m.rank), v(m.ranks), v(m.lane),
        v(m.session.bytes);
    v(m.incarnation), v(m.features), v(m.nonce), v.text(m.job, kMaxJobText), v.text(m.tenant, kMaxJobText),
        v.rest(m.later);
  }
};

struct Welcome {
  static constexpr FrameType kType = FrameType::kWelcome;
  static constexpr bool kMayGrow = true;
  uint8_t version = 0;  // chosen: the highest common one
  uint8_t proof = 0;    // 1: mac is valid and the client must prove itself too
  uint16_t lanes = 0;   // lane connections per session this reducer offers
  uint32_t max_slot_bytes = 0;
  uint64_t reducer = 0;  // random id of this reducer process: its identity in views
  uint64_t features = 0;
  Nonce nonce{};
  Mac mac{};
  std::string software{};          // "sluice 0.1.0"
  std::vector<std::byte> later{};  // as in Hello
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.version), v(m.proof), v(m.lanes), v(m.max_slot_bytes), v(m.reducer), v(m.features), v(m.nonce),
        v(m.mac);
    v.text(m.software, kMaxJobText), v.rest(m.later);
  }
};

struct Join {
  static constexpr FrameType kType = FrameType::kJoin;
  static constexpr bool kMayGrow = false;
  uint64_t view_hash = 0;
  uint32_t window_bytes = 0;   // per (worker, reducer)
  uint32_t slot_bytes = 0;     // largest payload of a data frame
  uint16_t lanes = 0;          // lane connections this rank will open to this reducer
  uint16_t reducer_index = 0;  // this reducer's place in the view; 0 = the arbiter
  uint32_t join_timeout_ms = 0;
  std::vector<uint64_t> reducers;  // ids in view order, to name a difference
  Mac mac{};
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.view_hash), v(m.window_bytes), v(m.slot_bytes), v(m.lanes), v(m.reducer_index), v(m.join_timeout_ms);
    v.list(m.reducers, kMaxReducers), v(m.mac);
  }
};

struct Joined {
  static constexpr FrameType kType = FrameType::kJoined;
  static constexpr bool kMayGrow = false;
  uint32_t handle = 0;  // the session's name in frame headers to and from this reducer
  uint32_t heartbeat_ms = 0;
  uint32_t peer_timeout_ms = 0;  // silence after which the other side is lost
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.handle), v(m.heartbeat_ms), v(m.peer_timeout_ms);
  }
};

struct Attach {
  static constexpr FrameType kType = FrameType::kAttach;
  static constexpr bool kMayGrow = false;
  uint32_t handle = 0;
  uint64_t view_hash = 0;
  Mac mac{};
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.handle), v(m.view_hash), v(m.mac);
  }
};

struct Attached {
  static constexpr FrameType kType = FrameType::kAttached;
  static constexpr bool kMayGrow = false;
  uint32_t slots = 0;  // W: slots granted on this lane
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.slots);
  }
};

// How a lane connection, or a stream, goes on where kFeatureRdma is in force: PROTOCOL.md sections 5 and 13.
struct Pair {
  static constexpr FrameType kType = FrameType::kPair;
  static constexpr bool kMayGrow = true;
  std::vector<uint8_t> address{};  // of a queue pair (section 15); empty: there is none
  std::string why{};               // there is none
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v.list(m.address, kMaxPairAddress), v.text(m.why, kMaxWhy);
  }
};
struct Paired {
  static constexpr FrameType kType = FrameType::kPaired;
  static constexpr bool kMayGrow = true;
  uint8_t ready = 0;
  std::string why{};  // not
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.ready), v.text(m.why, kMaxWhy);
  }
};

// A refusal or an end, for a person: code, the rank it is about (kNoRank: none), one line of text.
struct Ending {
  Errc code = Errc::kInternal;
  uint32_t rank = kNoRank;
  std::string text{};
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.code), v(m.rank), v.text(m.text, kMaxErrorText);
  }
};
struct Refused : Ending {
  static constexpr FrameType kType = FrameType::kRefused;
  static constexpr bool kMayGrow = true;
};
struct Abort : Ending {
  static constexpr FrameType kType = FrameType::kAbort;
  static constexpr bool kMayGrow = false;
};

struct Vote {
  static constexpr FrameType kType = FrameType::kVote;
  static constexpr bool kMayGrow = false;
  uint8_t yes = 0;
  Ending reason{};  // of a no
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.yes), Ending::visit(m.reason, v);
  }
};

struct Verdict {
  static constexpr FrameType kType = FrameType::kVerdict;
  static constexpr bool kMayGrow = false;
  uint8_t commit = 0;
  uint64_t incarnation = 0;  // random, not 0, when committed
  Ending reason{};           // when not
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.commit), v(m.incarnation), Ending::visit(m.reason, v);
  }
};

struct Commit {
  static constexpr FrameType kType = FrameType::kCommit;
  static constexpr bool kMayGrow = false;
  uint64_t incarnation = 0;
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.incarnation);
  }
};

struct Heartbeat {
  static constexpr FrameType kType = FrameType::kHeartbeat;
  static constexpr bool kMayGrow = true;
  uint64_t count = 0;
  uint32_t waited_ms = 0;           // reducer to worker: how long the oldest unfinished chunk has waited
  uint32_t missing_ranks = 0;       // ... and for how many ranks
  std::vector<uint32_t> missing{};  // the first of them
  uint64_t finished = 0;            // worker to reducer: its first chunk without a result
  uint8_t answer = 0;               // reducer to worker: 1, answer at once
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.count), v(m.waited_ms), v(m.missing_ranks), v.list(m.missing, kMaxNamedRanks), v(m.finished),
        v(m.answer);
  }
};

struct Leave {
  static constexpr FrameType kType = FrameType::kLeave;
  static constexpr bool kMayGrow = true;
  uint64_t finished = 0;  // its first chunk without a result
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.finished);
  }
};
struct LeaveAck {
  static constexpr FrameType kType = FrameType::kLeaveAck;
  static constexpr bool kMayGrow = true;
  template <typename Self, typename V>
  static void visit(Self&, V&) {}
};

struct StatusQuery {
  static constexpr FrameType kType = FrameType::kStatusQuery;
  static constexpr bool kMayGrow = false;
  Mac mac{};
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.mac);
  }
};
struct StatusReply {
  static constexpr FrameType kType = FrameType::kStatusReply;
  static constexpr bool kMayGrow = false;
  std::string json{};
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v.text(m.json, kMaxStatusText);
  }
};
// Asks an arbiter how a vote ended. Answered with VERDICT; kUnknownSession in it when the verdict is no
// longer kept.
struct VerdictQuery {
  static constexpr FrameType kType = FrameType::kVerdictQuery;
  static constexpr bool kMayGrow = false;
  Mac mac{};
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.mac);
  }
};

// Point-to-point streams (PROTOCOL.md section 13). First frame of each stream; proves by `secret` that its
// sender was given the receiver's handle.
struct Stream {
  static constexpr FrameType kType = FrameType::kStream;
  static constexpr bool kMayGrow = false;
  uint8_t min_version = kVersionMin;
  uint8_t max_version = kVersionMax;
  uint16_t index = 0;  // of this stream, below count
  uint16_t count = 0;  // streams the sender has opened
  std::array<uint8_t, 16> secret{};
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.min_version), v(m.max_version), v(m.index), v(m.count), v(m.secret);
  }
};
// In place of STREAM, to a receiver whose handle told features: with those of the sender.
struct StreamOffer {
  static constexpr FrameType kType = FrameType::kStreamOffer;
  static constexpr bool kMayGrow = false;
  Stream stream{};
  uint64_t features = 0;
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    Stream::visit(m.stream, v), v(m.features);
  }
};
// The receiver's answer on each stream it takes, once it has all it will take.
struct StreamAnswer {
  static constexpr FrameType kType = FrameType::kStreamAnswer;
  static constexpr bool kMayGrow = false;
  Errc code = Errc::kOk;
  uint8_t version = 0;  // chosen: the highest common one
  uint8_t reserved = 0;
  uint16_t count = 0;  // streams that get an answer; the sender ends the others
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.code), v(m.version), v(m.reserved), v(m.count);
  }
};

// Surviving losses: PROTOCOL.md section 11.
struct Resume {
  static constexpr FrameType kType = FrameType::kResume;
  static constexpr bool kMayGrow = false;
  uint64_t incarnation = 0;
  uint16_t version = 0;  // the rank's view
  uint64_t view_hash = 0;
  uint64_t base_chunk = 0;
  uint64_t results_held = 0;  // received in order on this lane in this view: the next one expected
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.incarnation), v(m.version), v(m.view_hash), v(m.base_chunk), v(m.results_held);
  }
};
struct ResumeAck {
  static constexpr FrameType kType = FrameType::kResumeAck;
  static constexpr bool kMayGrow = false;
  uint64_t contributions_held = 0;  // the next one expected
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.contributions_held);
  }
};
struct Suspect {
  static constexpr FrameType kType = FrameType::kSuspect;
  static constexpr bool kMayGrow = false;
  uint64_t reducer = 0;
  Errc code = Errc::kReducerLost;
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.reducer), v(m.code);
  }
};
// What became of the reducers of the first view: a roster (wire/roster.h) but for those.
struct RosterChange {
  std::vector<uint64_t> removed{};  // ascending
  std::vector<uint64_t> added{};    // ascending
  std::vector<uint64_t> seated{};   // ascending, of `added`
  std::string addresses{};          // of `added`, "host:port*weight", commas between; "" for one not known
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v.list(m.removed, kMaxViewChange), v.list(m.added, kMaxViewChange), v.list(m.seated, kMaxViewChange);
    v.text(m.addresses, kMaxAddresses);
  }
};
struct ViewQuery : RosterChange {
  static constexpr FrameType kType = FrameType::kViewQuery;
  static constexpr bool kMayGrow = false;
  uint16_t version = 0;
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.version), RosterChange::visit(m, v);
  }
};
struct ViewKnown : RosterChange {
  static constexpr FrameType kType = FrameType::kViewKnown;
  static constexpr bool kMayGrow = false;
};
struct ViewAnswer {
  static constexpr FrameType kType = FrameType::kViewAnswer;
  static constexpr bool kMayGrow = false;
  uint16_t version = 0;
  uint64_t view_hash = 0;
  uint64_t first_unfinished_chunk = 0;
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.version), v(m.view_hash), v(m.first_unfinished_chunk);
  }
};
struct ViewCommit {
  static constexpr FrameType kType = FrameType::kViewCommit;
  static constexpr bool kMayGrow = false;
  uint16_t version = 0;
  uint64_t view_hash = 0;
  uint64_t base_chunk = 0;
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.version), v(m.view_hash), v(m.base_chunk);
  }
};
struct DrainNotice {
  static constexpr FrameType kType = FrameType::kDrainNotice;
  static constexpr bool kMayGrow = true;
  uint32_t deadline_ms = 0;
  template <typename Self, typename V>
  static void visit(Self& m, V& v) {
    v(m.deadline_ms);
  }
};

template <typename M>
[[nodiscard]] std::vector<std::byte> encode_body(const M& m) {
  BodyWriter w;
  M::visit(m, w);
  return w.take();
}

// kBadLength when the body is short, or longer than the message where it may not grow; kBadField when a text
// or list is over its limit. Output only on kOk.
template <typename M>
[[nodiscard]] Status decode_body(std::span<const std::byte> in, M& out) {
  M m;
  BodyReader r(in);
  M::visit(m, r);
  if (!r.status().ok()) return r.status();
  if (r.left() != 0 && !M::kMayGrow) return Errc::kBadLength;
  out = std::move(m);
  return Errc::kOk;
}

// A whole control frame, ready to send: header with CRCs, then the body.
template <typename M>
[[nodiscard]] std::vector<std::byte> encode_message(const M& m, uint32_t session = 0,
                                                    uint8_t version = kVersionMax);

// Shared by encode_message.
[[nodiscard]] std::vector<std::byte> frame_control(FrameType type, std::span<const std::byte> body,
                                                   uint32_t session, uint8_t version);
// The header frame_control would write, for transports that take header and payload apart.
[[nodiscard]] FrameHeader control_header(FrameType type, std::span<const std::byte> body,
                                         uint32_t session) noexcept;

template <typename M>
std::vector<std::byte> encode_message(const M& m, uint32_t session, uint8_t version) {
  const auto body = encode_body(m);
  return frame_control(M::kType, body, session, version);
}

}  // namespace sluice::wire
