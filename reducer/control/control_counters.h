// Struct ControlCounters counts the events of a reducer's control side over its life. Control thread only.
#pragma once

#include <array>
#include <cstdint>

#include "core/status.h"
#include "reducer/lane/lane_counters.h"

namespace sluice::reducer {

struct ControlCounters {
  uint64_t accepted = 0;                       // connections
  std::array<Counter, kErrcCounters> closed;   // connections that never reached a lane, by reason
  std::array<Counter, kErrcCounters> refused;  // requests of connections, by reason

  uint64_t sessions_begun = 0;
  uint64_t sessions_completed = 0;
  uint64_t sessions_failed = 0;
  uint64_t sessions_moved = 0;  // continued at other reducers

  // Of fault-tolerant sessions:
  uint64_t control_resumes = 0;
  uint64_t views_proposed = 0;
  uint64_t views_committed = 0;

  // TLS handshakes:
  uint64_t tls_agreed = 0;
  uint64_t tls_failed = 0;

  // Lane connections that requested RDMA:
  uint64_t lanes_paired = 0;  // use a queue pair
  uint64_t lanes_on_tcp = 0;  // use TCP instead

  void count_close(Errc reason) noexcept { closed[slot(reason)].add(1); }
  void count_refusal(Errc reason) noexcept { refused[slot(reason)].add(1); }

 private:
  [[nodiscard]] static size_t slot(Errc reason) noexcept {
    const auto i = static_cast<size_t>(reason);
    return i < kErrcCounters ? i : 0;
  }
};

}  // namespace sluice::reducer
