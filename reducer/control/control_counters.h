// Struct ControlCounters counts the events of a reducer's control side over its life. Control thread only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/status.h"
#include "core/units.h"
#include "reducer/lane/lane_counters.h"

namespace sluice::reducer {

struct ControlCounters {
  uint64_t accepted = 0;   // connections
  ReasonCounters closed;   // connections that never reached a lane, by reason
  ReasonCounters refused;  // requests of connections, by reason

  uint64_t sessions_begun = 0;
  uint64_t sessions_completed = 0;
  uint64_t sessions_failed = 0;
  uint64_t sessions_moved = 0;  // continued at other reducers
  uint64_t session_ticks = 0;   // visits of the clock

  // Handlers of the control loop, by their processor time: a long one delays all other connections.
  DurationHistogram turns;
  uint64_t longest_turn_us = 0;
  void add_turn(Nanos time) noexcept {
    const auto us = static_cast<uint64_t>(time / kMicrosecond);
    turns.add(us);
    longest_turn_us = std::max(longest_turn_us, us);
  }

  // Of fault-tolerant sessions:
  uint64_t control_resumes = 0;
  uint64_t views_proposed = 0;
  uint64_t views_committed = 0;

  // Data packets that ranks have sent, and those of them that they sent again, by their heartbeats:
  uint64_t packets_in = 0;
  uint64_t lost_packets_in = 0;

  // TLS handshakes:
  uint64_t tls_agreed = 0;
  uint64_t tls_failed = 0;

  // Lane connections that requested RDMA:
  uint64_t lanes_paired = 0;  // use a queue pair
  uint64_t lanes_on_tcp = 0;  // use TCP instead
};

}  // namespace sluice::reducer
