// Class InflightLimit decides how many chunks each lane connection may have in flight: the W slots that the
// reducer granted, or fewer where more slots gain no throughput (docs/design/adr/0006-in-flight-limit.md).
//
// A star topology causes incast: n workers send to one reducer's port at once, every reducer sends to one
// worker's port, and the connections share the queue of their host. A queue that overflows drops packets. A
// loss at the end of a burst is only detected by a timer, 200 ms or more on Linux, and the operation waits
// on every rank. So the bytes in flight must fit into queues whose depths are unknown, and the queue of the
// own host does not even report its drops. The chunks without a result bound all bytes in flight,
// contributions and results alike, so the limit applies to them.
//
// Rule: use the least limit at which results arrive about as fast as possible. The limit starts low. Trials
// test twice the limit at first, later twice and half the limit in turn, less and less often. Lost packets
// cause an extra trial at half the limit, and such a trial may cost some throughput.
//
// Every chunk needs all ranks, so one rank gains nothing from a higher limit alone: all ranks must run a
// trial at the same time. They do, because the schedule of trials depends only on the results of the first
// connection. These results, and the losses flagged in them, are the same and in the same order on every
// rank. Each rank judges the outcome of a trial by itself; their speeds are about equal.
//
// Speed is bytes of results divided by the time in which operations were open, from the first result on. So a
// rank that starts an operation late does not lower the speed, unless other operations are open all the time.
// A measurement in which the limit never stopped a chunk is not used.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/units.h"

namespace sluice::engine {

class InflightLimit {
 public:
  static constexpr uint32_t kLeast = 1;
  static constexpr uint32_t kFirst = 2;  // one chunk travels to the reducer while another returns
  // The number of initial trials. They test twice the limit and follow each other without a rest.
  static constexpr uint32_t kInitialTrials = 7;
  // Results of a connection in one measurement, and between two trials. Both double from trial to trial: at
  // first a short operation suffices, and a large limit is measured over several rounds.
  static constexpr uint64_t kMeasure = 32, kMostMeasure = 256;
  static constexpr uint64_t kRest = 2048, kMostRest = 32768;
  // Results of a connection after restart() before the trials: a session first recovers its speed.
  static constexpr uint64_t kRestartRest = 256;
  // Results between two trials that losses cause; doubles from one to the next.
  static constexpr uint64_t kLossRest = 8192, kMostLossRest = 1 << 20;
  // Thresholds for the speed during a trial divided by the speed before.
  static constexpr double kGain = 1.05;       // accepts twice the limit
  static constexpr double kSame = 0.98;       // accepts half the limit
  static constexpr double kTolerable = 0.75;  // accepts half the limit when packets are lost
  static constexpr double kHopeless = 0.5;    // below: ends a trial at twice the limit at once
  // After k failed trials at twice the limit, a rank takes part in every 2^k-th only. k is at most this.
  static constexpr uint32_t kMostFailedTrials = 5;

  // No queue of a local network takes longer. More bytes in flight than pass in this time and the round trip
  // gain nothing, and what two sessions on one link gain there, they gain from each other.
  static constexpr Nanos kLongestQueue = 10 * kMillisecond;

  // `most` is the largest number of slots granted on a connection. `at_once`: the bytes in flight on a link
  // with one chunk on each connection; 0: unknown.
  explicit InflightLimit(uint32_t most, uint32_t first = kFirst, uint64_t at_once = 0) noexcept;

  // Of the slowest path, while its queues are empty; 0 until then.
  void set_round_trip(Nanos round_trip) noexcept { round_trip_ = round_trip; }

  // Dense chunks in flight per connection. More chunks may be in flight if their zero blocks do not travel.
  [[nodiscard]] uint32_t limit() const noexcept { return limit_; }

  // The limit, or the slots if they are fewer, stopped a chunk.
  void note_limited() noexcept { was_limited_ = true; }
  // A result arrived, on the first connection or another. `losses` is its flag for lost packets.
  void result(bool first, bool losses, uint64_t bytes, Nanos now) noexcept;
  // The last open operation ended.
  void idle(Nanos now) noexcept;
  // Others use the same links now, so speeds say nothing: ends a trial, and begins none before the next
  // measurement without them.
  void note_others() noexcept;
  // Every rank has a new first connection: the trials start again after a rest, from the accepted limit.
  void restart() noexcept;

 private:
  enum class Phase : uint8_t { kRest, kBefore, kTrial };
  enum class Trial : uint8_t { kMore, kLess, kLessForLosses };

  void next_phase(Nanos now) noexcept;
  void begin_trial() noexcept;
  void end_trial() noexcept;
  void enter(Phase phase, uint64_t results) noexcept;
  void end_interval(Nanos now) noexcept;
  [[nodiscard]] uint64_t measure() const noexcept;
  [[nodiscard]] double speed() const noexcept;  // 0: unknown

  uint32_t most_;
  uint64_t at_once_;
  Nanos round_trip_ = 0;
  uint32_t limit_;
  uint32_t accepted_;  // limit_ outside of trials

  // These have equal values on every rank at the same result of the first connection.
  uint64_t clock_ = 0;  // results of the clock lane (ChunkScheduler)
  uint64_t phase_ends_ = 0;
  Phase phase_ = Phase::kBefore;
  Trial trial_ = Trial::kMore;
  uint32_t trials_ = 0;     // without those that losses caused
  uint64_t rest_ends_ = 0;  // end of the rest that a trial for losses interrupts
  uint64_t losses_count_from_ = 0;
  uint64_t loss_rest_ = kLossRest;

  // These differ between ranks.
  uint32_t failed_trials_ = 0;  // at twice the limit, in a row
  double before_ = 0;
  bool busy_ = false;  // results have arrived since began_, and operations are open
  bool was_limited_ = false;
  bool has_others_ = false;  // in this phase
  Nanos began_ = 0;
  uint64_t bytes_ = 0;  // since began_
  // Sums over the earlier intervals of this phase.
  Nanos time_ = 0;
  uint64_t total_ = 0;
  double expected_ = 0;  // bytes of a whole trial, as in the phase before
};

// The limit of several sessions that share the links of their hosts. Trials of their own would mislead: one
// session gains at the others' expense, until all of them fill the queues. So whoever sees the results of all
// sessions makes the trials. Any thread.
class SharedInflightLimit {
 public:
  explicit SharedInflightLimit(uint32_t limit) noexcept : limit_(limit) {}
  [[nodiscard]] uint32_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  void set(uint32_t limit) noexcept { limit_.store(limit, std::memory_order_relaxed); }
  // Stores only a change: the schedulers call it often, on several threads, and read the limit beside it.
  void note_limited() noexcept {
    if (!was_limited_.load(std::memory_order_relaxed)) was_limited_.store(true, std::memory_order_relaxed);
  }
  // Whether the limit has stopped a chunk since the last call.
  [[nodiscard]] bool take_limited() noexcept {
    return was_limited_.exchange(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> limit_;
  std::atomic<bool> was_limited_{false};
};

}  // namespace sluice::engine
