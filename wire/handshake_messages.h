// Handshake messages: the first frames of every connection (protocol.md section 5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "wire/frame.h"
#include "wire/message_limits.h"

namespace sluice::wire {

// The purpose of a connection.
enum class Purpose : uint8_t {
  kControl = 0,
  kLane = 1,
  kStatus = 2,
  kVerdict = 3,
  kGather = 4,
  kStore = 5,
  kDrain = 6
};

// First frame of every connection. Versions are negotiated with this message, so its layout never changes.
// A newer peer may append fields.
struct Hello {
  static constexpr FrameType kType = FrameType::kHello;
  static constexpr bool kMayGrow = true;
  uint8_t min_version = kVersionMin;
  uint8_t max_version = kVersionMax;
  Purpose purpose = Purpose::kControl;
  uint8_t reserved = 0;
  uint32_t rank = 0;
  uint32_t ranks = 0;  // n
  uint32_t lane = 0;   // with purpose kLane: index of the lane connection to this reducer
  SessionId session{};
  uint64_t incarnation = 0;  // 0 before commit
  uint64_t features = 0;
  Nonce nonce{};
  std::string job{};                  // job id of the token; "" means "default"
  std::string tenant{};               // tenant charged for bandwidth and memory; "" means the job
  std::optional<uint64_t> key_id{};   // handshake.h; nothing: no token, or an earlier client
  std::vector<std::byte> trailing{};  // fields of a newer version; kept because proofs cover the body as sent
  static void visit(auto& m, auto& v) {
    v(m.min_version), v(m.max_version), v(m.purpose), v(m.reserved), v(m.rank), v(m.ranks), v(m.lane),
        v(m.session.bytes);
    v(m.incarnation), v(m.features), v(m.nonce), v.text(m.job, kMaxJobText), v.text(m.tenant, kMaxJobText),
        v.appended(m.key_id), v.rest(m.trailing);
  }
};

// The reducer's answer to HELLO.
struct Welcome {
  static constexpr FrameType kType = FrameType::kWelcome;
  static constexpr bool kMayGrow = true;
  uint8_t version = 0;  // the highest common version
  uint8_t proof = 0;    // 1: mac is valid and the client must prove itself too
  uint16_t lanes = 0;   // lane connections per session this reducer offers
  uint32_t max_slot_bytes = 0;
  uint64_t reducer = 0;  // random id of this reducer process, used in views
  uint64_t features = 0;
  Nonce nonce{};
  Mac mac{};
  std::string software{};  // "sluice 0.1.0"
  // Of the reducer's network link in each direction, in bits/s; nothing: unknown, or an older reducer.
  std::optional<uint64_t> link_rate{};
  std::vector<std::byte> trailing{};  // as in Hello
  static void visit(auto& m, auto& v) {
    v(m.version), v(m.proof), v(m.lanes), v(m.max_slot_bytes), v(m.reducer), v(m.features), v(m.nonce),
        v(m.mac);
    v.text(m.software, kMaxJobText), v.appended(m.link_rate), v.rest(m.trailing);
  }
};

// Asks for a place in a session; sent on the control connection.
struct Join {
  static constexpr FrameType kType = FrameType::kJoin;
  static constexpr bool kMayGrow = false;
  uint64_t view_hash = 0;
  uint32_t window_bytes = 0;   // per (worker, reducer)
  uint32_t slot_bytes = 0;     // largest payload of a data frame
  uint16_t lanes = 0;          // lane connections this rank will open to this reducer
  uint16_t reducer_index = 0;  // index of this reducer in the view; 0 is the arbiter
  uint32_t join_timeout_ms = 0;
  std::vector<uint64_t> reducers;  // ids in view order, so that a mismatch can be reported by id
  Mac mac{};
  static void visit(auto& m, auto& v) {
    v(m.view_hash), v(m.window_bytes), v(m.slot_bytes), v(m.lanes), v(m.reducer_index), v(m.join_timeout_ms);
    v.list(m.reducers, kMaxReducers), v(m.mac);
  }
};

// Accepts a JOIN.
struct Joined {
  static constexpr FrameType kType = FrameType::kJoined;
  static constexpr bool kMayGrow = false;
  uint32_t handle = 0;  // FrameHeader::session on all connections to this reducer
  uint32_t heartbeat_ms = 0;
  uint32_t peer_timeout_ms = 0;  // a side that stays silent for this long is lost
  static void visit(auto& m, auto& v) { v(m.handle), v(m.heartbeat_ms), v(m.peer_timeout_ms); }
};

// Adds a lane connection to a joined session.
struct Attach {
  static constexpr FrameType kType = FrameType::kAttach;
  static constexpr bool kMayGrow = false;
  uint32_t handle = 0;
  uint64_t view_hash = 0;
  Mac mac{};
  static void visit(auto& m, auto& v) { v(m.handle), v(m.view_hash), v(m.mac); }
};

// Accepts an ATTACH.
struct Attached {
  static constexpr FrameType kType = FrameType::kAttached;
  static constexpr bool kMayGrow = false;
  uint32_t slots = 0;  // W: slots granted on this lane
  static void visit(auto& m, auto& v) { v(m.slots); }
};

// PAIR and PAIRED move a lane connection or a stream to a queue pair where kFeatureRdma is in force
// (protocol.md sections 5 and 13).
struct Pair {
  static constexpr FrameType kType = FrameType::kPair;
  static constexpr bool kMayGrow = true;
  std::vector<uint8_t> address{};  // of a queue pair (section 15); empty without one
  std::string reason{};            // why there is no queue pair
  static void visit(auto& m, auto& v) {
    v.list(m.address, kMaxPairAddress), v.text(m.reason, kMaxReasonText);
  }
};

struct Paired {
  static constexpr FrameType kType = FrameType::kPaired;
  static constexpr bool kMayGrow = true;
  uint8_t ready = 0;
  std::string reason{};  // why ready is 0
  static void visit(auto& m, auto& v) { v(m.ready), v.text(m.reason, kMaxReasonText); }
};

// The reason of a refusal or of the end of a session: a code, the rank concerned (or kNoRank), and one line
// of text for people.
struct SessionEnd {
  Errc code = Errc::kInternal;
  uint32_t rank = kNoRank;
  std::string text{};
  static void visit(auto& m, auto& v) { v(m.code), v(m.rank), v.text(m.text, kMaxErrorText); }
};

// Refuses a connection; the reducer closes it afterwards.
struct Refused : SessionEnd {
  static constexpr FrameType kType = FrameType::kRefused;
  static constexpr bool kMayGrow = true;
};

}  // namespace sluice::wire
