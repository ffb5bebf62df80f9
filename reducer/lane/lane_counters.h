// What a lane counts. Written by the lane thread alone with relaxed stores, read by anybody at any time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "core/status.h"
#include "core/units.h"
#include "wire/dtype.h"

namespace sluice::reducer {

template <typename T>
class Tally {
 public:
  // One writer: a load and a store, no locked instruction.
  void add(T n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void raise_to(T n) noexcept {
    if (n > get()) value_.store(n, std::memory_order_relaxed);
  }
  [[nodiscard]] T get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{0};
};

using Counter = Tally<uint64_t>;

// How long something took, in cells whose bounds double: cell i holds what took less than kFirst * 2^i
// microseconds, and no less than the bound before; the last one holds all that took longer. 16 us to 67 s.
class Durations {
 public:
  static constexpr size_t kCells = 24;
  static constexpr uint64_t kFirst = 16;

  void add(uint64_t microseconds) noexcept {
    cells_[std::min<size_t>(std::bit_width(microseconds / kFirst), kCells - 1)].add(1);
    sum_us_.add(microseconds);
  }
  [[nodiscard]] uint64_t cell(size_t i) const noexcept { return cells_[i].get(); }
  [[nodiscard]] uint64_t sum_us() const noexcept { return sum_us_.get(); }

 private:
  std::array<Counter, kCells> cells_;
  Counter sum_us_;
};

inline constexpr size_t kErrcSlots = 128;  // Errc numbers are below; others count in slot 0

struct alignas(kCacheLine) LaneCounters {
  Counter frames_in, frames_out;
  struct Moved {
    Counter bytes_in, bytes_out;  // payload
  };
  Moved tcp, rdma;
  Counter attached, detached;  // connections; the difference is there now
  Counter bytes_copied;        // payload bytes copied before the fold
  Counter bytes_copied_out;    // of results, on their way out
  Counter receive_calls, send_calls;
  Counter send_blocked_ns;                        // over TCP: sum over connections, while they took nothing
  Counter work_requests, doorbells, completions;  // over RDMA
  Counter chunks;                                 // results made
  // Of an operation, the part whose result was made here: its payload over that of the whole. So a pool's
  // sum is how many operations it has done.
  std::array<std::array<Tally<double>, wire::kOpCount>, wire::kDTypeCount> operations;
  std::array<std::array<Counter, wire::kOpCount>, wire::kDTypeCount>
      folded;           // payload bytes that were summed
  Durations straggler;  // of each chunk: last contribution after the first
  Counter straggler_us_max;
  std::array<Durations, wire::kOpCount> operation_durations;  // of parts of operations, see OperationClock
  Counter resumes;                         // connections that went on where another broke off
  Counter results_resent;                  // on those
  Counter contributions_dropped;           // of ranks that had not followed into the next view
  Counter view_moves;                      // a session on this lane moved to its next view
  Counter kept_results;                    // chunks whose result a rank held: not summed
  Counter turns, busy_turns;               // of the lane's loop; busy = did something
  Counter busy_ns;                         // from the beginning of a busy turn to the next turn
  Counter fold_ns;                         // of these: sums, and the checksums of results
  std::array<Counter, kErrcSlots> closed;  // connections closed, by reason

  [[nodiscard]] uint64_t bytes_folded() const noexcept {
    uint64_t sum = 0;
    for (const auto& of_type : folded) {
      for (const Counter& c : of_type) sum += c.get();
    }
    return sum;
  }
  void count_close(Errc reason) noexcept {
    const auto i = static_cast<size_t>(reason);
    closed[i < kErrcSlots ? i : 0].add(1);
  }
};

}  // namespace sluice::reducer
