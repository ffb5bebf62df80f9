// Messages of the control connection of a session, and of status queries (protocol.md sections 5, 9 and 10).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/frame.h"
#include "wire/handshake_messages.h"
#include "wire/message_limits.h"

namespace sluice::wire {

// A rank's vote on the start of the session; sent to the arbiter.
struct Vote {
  static constexpr FrameType kType = FrameType::kVote;
  static constexpr bool kMayGrow = false;
  uint8_t yes = 0;
  SessionEnd reason{};  // when yes is 0
  static void visit(auto& m, auto& v) { v(m.yes), SessionEnd::visit(m.reason, v); }
};

// The arbiter's decision on the votes.
struct Verdict {
  static constexpr FrameType kType = FrameType::kVerdict;
  static constexpr bool kMayGrow = false;
  uint8_t commit = 0;
  uint64_t incarnation = 0;  // random and not 0 when commit is 1
  SessionEnd reason{};       // when commit is 0
  static void visit(auto& m, auto& v) { v(m.commit), v(m.incarnation), SessionEnd::visit(m.reason, v); }
};

// First frame of a lane connection, and first frame after the verdict on a control connection.
struct Commit {
  static constexpr FrameType kType = FrameType::kCommit;
  static constexpr bool kMayGrow = false;
  uint64_t incarnation = 0;
  static void visit(auto& m, auto& v) { v(m.incarnation); }
};

// Shows that the sender is alive.
struct Heartbeat {
  static constexpr FrameType kType = FrameType::kHeartbeat;
  static constexpr bool kMayGrow = true;
  uint64_t count = 0;
  uint32_t waited_ms = 0;           // reducer to worker: age of the oldest unfinished chunk
  uint32_t missing_ranks = 0;       // reducer to worker: number of ranks which that chunk waits for
  std::vector<uint32_t> missing{};  // the first of those ranks
  uint64_t finished = 0;            // worker to reducer: first chunk without a result
  uint8_t answer = 0;               // reducer to worker: 1 asks for a heartbeat at once
  // What the sender sees on its lane connections to the receiver; peers of version 0.1 do not send it.
  std::optional<uint64_t> packets{}, lost_packets{};  // sent since the session began
  std::optional<uint32_t> stalled_ms{};               // for so long no sent byte has been acknowledged
  static void visit(auto& m, auto& v) {
    v(m.count), v(m.waited_ms), v(m.missing_ranks), v.list(m.missing, kMaxNamedRanks), v(m.finished),
        v(m.answer), v.appended(m.packets), v.appended(m.lost_packets), v.appended(m.stalled_ms);
  }
};

// The rank contributes nothing more.
struct Leave {
  static constexpr FrameType kType = FrameType::kLeave;
  static constexpr bool kMayGrow = true;
  uint64_t finished = 0;  // first chunk without a result
  static void visit(auto& m, auto& v) { v(m.finished); }
};

// The reducer no longer needs the rank that sent LEAVE.
struct LeaveAck {
  static constexpr FrameType kType = FrameType::kLeaveAck;
  static constexpr bool kMayGrow = true;
  static void visit(auto&, auto&) {}
};

// Ends the session on all ranks.
struct Abort : SessionEnd {
  static constexpr FrameType kType = FrameType::kAbort;
  static constexpr bool kMayGrow = false;
};

// Asks a reducer for its status as JSON.
struct StatusQuery {
  static constexpr FrameType kType = FrameType::kStatusQuery;
  static constexpr bool kMayGrow = false;
  Mac mac{};
  static void visit(auto& m, auto& v) { v(m.mac); }
};

struct StatusReply {
  static constexpr FrameType kType = FrameType::kStatusReply;
  static constexpr bool kMayGrow = false;
  std::string json{};
  static void visit(auto& m, auto& v) { v.text(m.json, kMaxStatusText); }
};

// Asks an arbiter for the verdict of a vote. The answer is a VERDICT; its reason is kUnknownSession when the
// arbiter no longer keeps the verdict.
struct VerdictQuery {
  static constexpr FrameType kType = FrameType::kVerdictQuery;
  static constexpr bool kMayGrow = false;
  Mac mac{};
  static void visit(auto& m, auto& v) { v(m.mac); }
};

}  // namespace sluice::wire
