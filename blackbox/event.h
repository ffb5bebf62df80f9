// Defines the records of the black box: events of sessions, connections and operations of this process
// (docs/guides/blackbox.md). A record has a fixed size and owns no memory, so that recording it is a copy.
#pragma once

#include <array>
#include <cstdint>

#include "core/ids.h"
#include "core/status.h"
#include "core/units.h"

namespace sluice::blackbox {

// Each kind uses the fields of Event as kEventKinds (event_kinds.cc) says, which also has its name in files.
enum class EventKind : uint16_t {
  kNone,
  // The process.
  kStarted,
  kSignal,
  kStalled,  // did not run for some time
  kReducerListening,
  // The life of a session.
  kJoining,
  kOpened,
  kReducerJoined,
  kReducerRejected,
  kRankJoined,
  kCommitted,
  kJoinFailed,
  kRankLeft,
  kAborted,
  kEnded,
  kMoved,
  // Connections and peers.
  kConnectionRefused,
  kConnectionLost,
  kConnectionResumed,
  kPeerSilent,
  kPeerHeard,
  kRankExcluded,
  kReducerLost,
  kReducerRemoved,
  kReducerDraining,
  kReducerStopping,
  kHeartbeatSent,
  kHeartbeatReceived,
  // Views.
  kViewProposed,
  kViewCommitted,
  kViewChanged,
  kStallEnded,
  kLinkRateChanged,
  // Operations.
  kRankLate,
  kRankOnTime,
  kOperationBegan,
  kOperationEnded,
};

inline constexpr uint64_t kNoPeer = UINT64_MAX;

// Whose event it is.
enum class Role : uint8_t { kProcess, kRank, kReducer };

struct Event {
  Nanos at = 0;          // CLOCK_MONOTONIC
  uint64_t session = 0;  // session_key(); 0: none
  uint64_t source = 0;   // kRank: the rank; kReducer: the reducer's id
  uint64_t peer = kNoPeer;
  uint64_t a = 0;
  uint64_t b = 0;
  EventKind kind = EventKind::kNone;
  Errc code = Errc::kOk;
  Role role = Role::kProcess;
  std::array<uint8_t, 3> unused{};  // no padding: records are copied as words
};
static_assert(sizeof(Event) == 56);

inline constexpr size_t kEventTextBytes = 192;  // with the NUL at the end

struct TextEvent {
  Event event;
  std::array<char, kEventTextBytes> text;  // a name or a reason, cut if it is longer; ends with a NUL
};
static_assert(sizeof(TextEvent) == 248);

// Identifies a session in events: the first 8 bytes of its id, which logs show as the first 16 digits.
[[nodiscard]] constexpr uint64_t session_key(const SessionId& id) noexcept {
  uint64_t key = 0;
  for (size_t i = 0; i < 8; ++i) key = key << 8 | id.bytes[i];
  return key;
}

// The field `a` of the kinds about connections: 0 is the control connection.
[[nodiscard]] constexpr uint64_t lane_number(uint32_t lane) noexcept {
  return uint64_t{lane} + 1;
}
inline constexpr uint64_t kControlConnection = 0;

}  // namespace sluice::blackbox
