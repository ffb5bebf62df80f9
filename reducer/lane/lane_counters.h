// What a lane counts. Written by the lane thread alone with relaxed stores, read by anybody at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/status.h"
#include "core/units.h"

namespace sluice::reducer {

class Counter {
 public:
  // One writer: a load and a store, no locked instruction.
  void add(uint64_t n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void raise_to(uint64_t n) noexcept {
    if (n > get()) value_.store(n, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

inline constexpr size_t kErrcSlots = 128;  // Errc numbers are below; others count in slot 0

struct alignas(kCacheLine) LaneCounters {
  Counter frames_in, frames_out;
  Counter bytes_in, bytes_out;  // payload
  Counter bytes_copied;         // payload bytes copied before the fold
  Counter bytes_copied_out;     // of results, on their way out
  Counter receive_calls, send_calls;
  Counter work_requests, doorbells, completions;  // over RDMA
  Counter chunks;                                 // results made
  Counter bytes_folded;                           // payload bytes that went into sums
  Counter straggler_us;                           // sum over chunks: last contribution after the first
  Counter straggler_us_max;
  Counter resumes;                         // connections that went on where another broke off
  Counter results_resent;                  // on those
  Counter contributions_dropped;           // of ranks that had not followed into the next view
  Counter view_moves;                      // a session on this lane moved to its next view
  Counter kept_results;                    // chunks whose result a rank held: not summed
  Counter turns, busy_turns;               // of the lane's loop; busy = did something
  std::array<Counter, kErrcSlots> closed;  // connections closed, by reason

  void count_close(Errc reason) noexcept {
    const auto i = static_cast<size_t>(reason);
    closed[i < kErrcSlots ? i : 0].add(1);
  }
};

}  // namespace sluice::reducer
