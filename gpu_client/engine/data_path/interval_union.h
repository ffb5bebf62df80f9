// Class IntervalUnion measures the time that lies in at least one of many intervals, for counters of waiting
// time: time in which several intervals overlap counts once, so the total never exceeds the wall time.
//
// Intervals may begin in any order, but must come in the order of their ends: a wait is added when it ends.
// The latest kIntervals separate ones are stored. An interval that reaches back past all of them counts from
// the end of the last interval that was dropped; the total is then too small, never too large.
//
// add() belongs to one thread. Any thread may call total(). Nothing is allocated.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#include "core/units.h"

namespace sluice::engine {

class IntervalUnion {
 public:
  static constexpr size_t kIntervals = 6;

  // Requires that `end` is no earlier than in the call before.
  void add(Nanos begin, Nanos end) noexcept {
    begin = std::max(begin, floor_);
    if (begin >= end) return;
    Nanos counted = 0;  // of the stored intervals that the new one touches, and which it replaces
    for (; count_ > 0 && stored_[count_ - 1].end >= begin; --count_) {
      const Interval& last = stored_[count_ - 1];
      counted += last.end - last.begin;
      begin = std::min(begin, last.begin);
      end = std::max(end, last.end);
    }
    if (count_ == kIntervals) {
      floor_ = stored_.front().end;
      std::ranges::copy(stored_.begin() + 1, stored_.end(), stored_.begin());
      --count_;
    }
    stored_[count_++] = {.begin = begin, .end = end};
    total_.store(total() + (end - begin) - counted, std::memory_order_relaxed);
  }
  [[nodiscard]] Nanos total() const noexcept { return total_.load(std::memory_order_relaxed); }

 private:
  struct Interval {
    Nanos begin = 0;
    Nanos end = 0;
  };
  std::array<Interval, kIntervals> stored_{};  // separate, in order
  size_t count_ = 0;
  Nanos floor_ = 0;  // end of the last interval that was dropped
  std::atomic<Nanos> total_{0};
};

}  // namespace sluice::engine
