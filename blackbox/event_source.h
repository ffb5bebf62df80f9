// Class EventSource records the events of one rank, one reducer or the process in the black box of this
// process. It is a small value: sessions and reducers keep a copy.
//
// Any thread. record() costs less than 100 ns; it allocates, formats and locks nothing.
#pragma once

#include <string_view>

#include "blackbox/event.h"
#include "blackbox/event_ring.h"

namespace sluice::blackbox {

struct EventFields {
  uint64_t peer = kNoPeer;  // wire::kNoRank is no peer, too
  uint64_t a = 0;
  uint64_t b = 0;
  Errc code = Errc::kOk;
  Nanos at = 0;  // 0: now
};

class EventSource {
 public:
  constexpr EventSource() noexcept = default;  // the process
  [[nodiscard]] static EventSource of_rank(const SessionId& session, Rank rank) noexcept {
    return {Role::kRank, rank, session_key(session)};
  }
  // `session`: session_key(); 0: events of the reducer itself.
  [[nodiscard]] static EventSource of_reducer(uint64_t id, uint64_t session = 0) noexcept {
    return {Role::kReducer, id, session};
  }

  void record(EventKind kind, const EventFields& fields = {}, std::string_view text = {}) const noexcept;
  // For kinds with many events, which must not displace the others. Has no text.
  void record_frequent(EventKind kind, const EventFields& fields) const noexcept;

 private:
  constexpr EventSource(Role role, uint64_t source, uint64_t session) noexcept
      : session_(session), source_(source), role_(role) {}
  [[nodiscard]] Event event(EventKind kind, const EventFields& fields) const noexcept;

  uint64_t session_ = 0;
  uint64_t source_ = 0;
  Role role_ = Role::kProcess;
};

// The rings of this process. A shared library has its own, apart from those of the program.
struct ProcessRings {
  EventRing<TextEvent, 2048> events;  // 512 KiB; memory is used once events come
  EventRing<Event, 4096> frequent;    // 256 KiB: operations, and a reducer's heartbeats
};
[[nodiscard]] ProcessRings& process_rings() noexcept;

}  // namespace sluice::blackbox
