#include "gpu_client/engine/pace.h"

#include <algorithm>
#include <utility>

namespace sluice::engine {

Pace::Pace(uint32_t links, uint32_t most) noexcept
    : links_(links), most_(std::max(most, 1U)), limit_(std::min(kLeast, most_)) {}

void Pace::result(Nanos now) noexcept {
  if (!busy_) {
    busy_ = true;
    held_back_ = false;
    began_ = now;
    results_ = 0;
    return;
  }
  ++results_;
  if (results_ >= kStretch * round() || now - began_ + time_ > patience_) end_stretch(now);
}

void Pace::idle(Nanos now) noexcept {
  if (busy_) end_stretch(now);
  busy_ = false;
}

void Pace::end_stretch(Nanos now) noexcept {
  const Nanos took = now - std::exchange(began_, now);
  const uint64_t results = std::exchange(results_, 0);
  if (!std::exchange(held_back_, false) || took <= 0) return;
  time_ += took;
  total_ += results;
  if (total_ >= (state_ == State::kWaiting ? wait_ : kTrial) * round() || time_ > patience_)
    judge(static_cast<double>(total_) / static_cast<double>(time_));
}

void Pace::judge(double speed) noexcept {
  switch (state_) {
    case State::kRising:
      if (speed >= kGain * before_) {  // or the first of all
        wait_ = kShortestWait;
        return try_more(speed);
      }
      set(State::kWaiting, limit_ / 2);
      return try_less(State::kFalling, before_);
    case State::kFalling:
      if (speed >= kSame * before_) return try_less(State::kFalling, speed);
      return wait_at(2 * limit_);
    case State::kFallingForLosses:
      immune_ = speed < kTolerable * before_;
      return wait_at(immune_ ? 2 * limit_ : limit_);
    case State::kWaiting:
      immune_ = false;
      less_next_ = !less_next_;
      return less_next_ ? try_less(State::kFalling, speed) : try_more(speed);
  }
}

void Pace::try_more(double speed) noexcept {
  if (limit_ == most_) return wait_at(most_);
  before_ = speed;
  set(State::kRising, 2 * limit_);
  patience_ = static_cast<Nanos>(2 * static_cast<double>(kTrial * round()) / speed);
}

void Pace::try_less(State why, double speed) noexcept {
  if (limit_ <= kLeast) return wait_at(limit_);
  before_ = speed;
  set(why, std::max(limit_ / 2, kLeast));
}

void Pace::lost() noexcept {
  if (state_ == State::kRising && before_ != 0) return wait_at(limit_ / 2);
  // How fast it was is known after a trial's worth of results only.
  if (state_ != State::kWaiting || immune_ || total_ < kTrial * round()) return;
  try_less(State::kFallingForLosses, static_cast<double>(total_) / static_cast<double>(time_));
}

void Pace::wait_at(uint32_t limit) noexcept {
  set(State::kWaiting, limit);
  wait_ = std::min(2 * wait_, kLongestWait);
}

void Pace::set(State state, uint32_t limit) noexcept {
  state_ = state;
  limit_ = std::min(limit, most_);
  results_ = 0;
  time_ = 0;
  total_ = 0;
  patience_ = INT64_MAX;
  busy_ = false;  // the next result begins
}

}  // namespace sluice::engine
