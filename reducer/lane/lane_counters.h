// The counters of one lane. Only the lane thread writes them, with relaxed stores; any thread may read them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "core/status.h"
#include "core/units.h"
#include "wire/dtype.h"
#include "wire/extension.h"

namespace sluice::reducer {

template <typename T>
class RelaxedCounter {
 public:
  // A load and a store suffice because one thread writes: no locked instruction.
  void add(T n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void set(T n) noexcept { value_.store(n, std::memory_order_relaxed); }
  void raise_to(T n) noexcept {
    if (n > get()) value_.store(n, std::memory_order_relaxed);
  }
  [[nodiscard]] T get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{0};
};

using Counter = RelaxedCounter<uint64_t>;

// Class DurationHistogram counts durations in buckets whose upper bounds double, from 16 us to 67 s.
//
// Bucket i counts durations below kFirstBoundUs * 2^i that no earlier bucket counts. The last bucket has no
// upper bound.
class DurationHistogram {
 public:
  static constexpr size_t kBuckets = 24;
  static constexpr uint64_t kFirstBoundUs = 16;

  void add(uint64_t microseconds) noexcept {
    buckets_[std::min<size_t>(std::bit_width(microseconds / kFirstBoundUs), kBuckets - 1)].add(1);
    sum_us_.add(microseconds);
  }
  [[nodiscard]] uint64_t bucket(size_t i) const noexcept { return buckets_[i].get(); }
  [[nodiscard]] uint64_t sum_us() const noexcept { return sum_us_.get(); }

 private:
  std::array<Counter, kBuckets> buckets_;
  Counter sum_us_;
};

// Counts events by reason. The size is above every Errc number; others are counted in slot 0.
using ReasonCounters = std::array<Counter, 128>;
inline void count_reason(ReasonCounters& counters, Errc reason) noexcept {
  const auto i = static_cast<size_t>(reason);
  counters[i < counters.size() ? i : 0].add(1);
}

// By kind.
using FindingCounters = std::array<Counter, wire::kFindingKindCount>;
template <typename Counters>  // const or not
[[nodiscard]] auto& of_kind(Counters& counters, wire::FindingKind kind) noexcept {
  return counters[static_cast<size_t>(kind) - 1];
}

struct alignas(kCacheLine) LaneCounters {
  Counter frames_in, frames_out;
  struct PayloadBytes {
    Counter bytes_in, bytes_out;
  };
  PayloadBytes tcp, rdma;
  Counter attached, detached;  // connections; the difference is the number that is open
  Counter bytes_copied;        // payload bytes copied before the fold
  Counter bytes_copied_out;    // payload bytes of results copied on their way out
  Counter receive_calls, send_calls;
  Counter packets_out, lost_packets_out;  // TCP: data packets sent, and those of them that were sent again
  Counter send_blocked_ns;                // TCP: time that connections accepted no data, summed
  Counter work_requests, post_calls, completions;  // RDMA
  Counter chunks;                                  // results produced
  // The fraction of each operation that was reduced here: result payload over the operation's payload. The
  // sum over a pool is the number of operations it has done.
  std::array<std::array<RelaxedCounter<double>, wire::kOpCount>, wire::kDTypeCount> operations;
  std::array<std::array<Counter, wire::kOpCount>, wire::kDTypeCount> folded;  // payload bytes summed
  DurationHistogram straggler;  // of each chunk: last contribution after the first
  Counter straggler_us_max;
  std::array<DurationHistogram, wire::kOpCount> operation_durations;  // see OperationTimer
  Counter resumes;                // connections that continued where another one broke
  Counter results_resent;         // on resumed connections
  Counter contributions_dropped;  // from ranks that had not entered the session's view yet
  Counter view_moves;             // sessions of this lane that entered their next view
  Counter sparse_bytes_saved;     // bytes of zero blocks that did not travel, in both directions
  Counter kept_results;           // chunks whose result a rank already held: not summed
  FindingCounters findings;       // chunks with one, by its kind; see HealthMonitor
  Counter turns, busy_turns;      // iterations of the lane's loop; busy: with work done
  Counter busy_ns;                // from the start of a busy turn to the next turn
  Counter fold_ns;                // part of busy_ns: sums, and the checksums of results
  ReasonCounters closed;          // connections closed, by reason

  [[nodiscard]] uint64_t bytes_folded() const noexcept {
    uint64_t sum = 0;
    for (const auto& of_type : folded) {
      for (const Counter& c : of_type) sum += c.get();
    }
    return sum;
  }
};

}  // namespace sluice::reducer
