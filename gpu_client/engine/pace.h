// How many chunks each lane connection may have under way: the W slots it was granted, or fewer where more
// gain nothing. docs/adr/0006.
//
// A star is an incast: n workers send to one reducer's port at the same moment, and every reducer to a
// worker's, over connections that share a host's own queue. What overflows a queue is lost, and a packet lost
// at the end of a burst is found by a timer only, 200 ms and more with Linux; the chunk it belongs to, hence
// the operation, waits on every rank. So the bytes under way must fit into queues whose depth nobody tells,
// and a queue of the own host does not even tell that it dropped something. All that are under way,
// contributions and results, are bounded by the chunks that lack a result: so here is the place to bound
// them.
//
// Rule: the least limit at which results come about as fast as they can. It begins low and is put on trial at
// twice as much, later in turns at twice and at half as much, more and more seldom. Lost packets call for a
// trial at half in between, and then even some less speed is taken.
//
// A chunk needs every rank, so one rank alone gains nothing by having more under way: all must try at the
// same time. They do: what is tried when follows from the results of the first connection alone, which are
// the same, in the same order, on every rank, and so are the losses that they tell of. What comes of a trial
// each rank judges for itself, by about the same speeds.
//
// Speed is bytes of results over the time in which operations were open, from the first result on: how late a
// rank comes to an operation does not count, unless others are open all the while. Where the limit held
// nothing back there is nothing to judge.
#pragma once

#include <cstdint>

#include "core/units.h"

namespace sluice::engine {

class Pace {
 public:
  static constexpr uint32_t kLeast = 1;
  static constexpr uint32_t kFirst = 2;  // one on the way up while one is on the way down
  // The first so many trials follow one another, all at twice as much.
  static constexpr uint32_t kRise = 7;
  // Results of a connection: that a speed is measured by, and between two trials. Both double from trial to
  // trial, so that a short operation is enough at first and a large limit is judged by some rounds.
  static constexpr uint64_t kMeasure = 32, kMostMeasure = 256;
  static constexpr uint64_t kRest = 2048, kMostRest = 32768;
  // Between two trials for losses; doubles from one to the next.
  static constexpr uint64_t kLossRest = 8192, kMostLossRest = 1 << 20;
  // Speed on trial over speed before.
  static constexpr double kGain = 1.05;       // worth twice the bytes
  static constexpr double kSame = 0.98;       // half the bytes are enough
  static constexpr double kTolerable = 0.75;  // half the bytes when packets are lost
  static constexpr double kHopeless = 0.5;    // ends a trial at twice as much at once
  // A rank whose last tries at twice as much were in vain takes part in every 2nd, 4th, ... only.
  static constexpr uint32_t kMostInVain = 5;

  // No connection is granted more than `most` slots.
  explicit Pace(uint32_t most) noexcept;

  // Chunks per connection.
  [[nodiscard]] uint32_t limit() const noexcept { return limit_; }

  // A chunk could have gone but for the limit, or the slots where they are no more.
  void held_back() noexcept { held_back_ = true; }
  // The result of a chunk is here, on the first connection or another. `losses`: its flag.
  void result(bool first, bool losses, uint64_t bytes, Nanos now) noexcept;
  // No operation is open any more.
  void idle(Nanos now) noexcept;
  // Another connection is the first from now on, on every rank: trials begin anew, from the limit that is
  // kept.
  void restart() noexcept;

 private:
  enum class Phase : uint8_t { kRest, kBefore, kTrial };
  enum class Trial : uint8_t { kMore, kLess, kLessForLosses };

  void next_phase(Nanos now) noexcept;
  void begin_trial() noexcept;
  void end_trial() noexcept;
  void enter(Phase phase, uint64_t results) noexcept;
  void end_stretch(Nanos now) noexcept;
  [[nodiscard]] uint64_t measure() const noexcept;
  [[nodiscard]] double speed() const noexcept;  // 0: not known

  uint32_t most_;
  uint32_t limit_;
  uint32_t kept_;  // limit_ but for a trial

  // The same on every rank at the same result of the first connection.
  uint64_t clock_ = 0;  // its results
  uint64_t phase_ends_ = 0;
  Phase phase_ = Phase::kBefore;
  Trial trial_ = Trial::kMore;
  uint32_t trials_ = 0;     // but for losses
  uint64_t rest_ends_ = 0;  // of the rest that a trial for losses interrupts
  uint64_t losses_count_from_ = 0;
  uint64_t loss_rest_ = kLossRest;

  // This rank's own.
  uint32_t in_vain_ = 0;
  double before_ = 0;
  bool busy_ = false;  // results have come since began_, and operations are open
  bool held_back_ = false;
  Nanos began_ = 0;
  uint64_t bytes_ = 0;  // since began_
  // Of earlier stretches of this phase.
  Nanos time_ = 0;
  uint64_t total_ = 0;
  double expected_ = 0;  // bytes of a whole trial, by the phase before
};

}  // namespace sluice::engine
