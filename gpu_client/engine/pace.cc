#include "gpu_client/engine/pace.h"

#include <algorithm>
#include <utility>

namespace sluice::engine {

Pace::Pace(uint32_t links, uint32_t most) noexcept
    : links_(links), most_(std::max(most, 1U)), limit_(std::min(kFirst, most_)), kept_(limit_) {
  enter(Phase::kBefore, measure());
}

void Pace::result(bool losses, Nanos now) noexcept {
  ++count_;
  if (busy_) {
    ++results_;
  } else {
    busy_ = true;
    held_back_ = false;
    began_ = now;
    results_ = 0;
  }
  if (losses && count_ >= losses_count_from_) bring_forward(now);
  if (count_ >= phase_ends_) return next_phase(now);
  if (phase_ != Phase::kTrial || limit_ <= kept_) return;
  // Only this rank stops, but that stops all.
  const auto took = static_cast<double>(time_ + now - began_);
  if (took * before_ * kHopeless > static_cast<double>(links_ * measure())) limit_ = kept_;
}

void Pace::idle(Nanos now) noexcept {
  if (busy_) end_stretch(now);
  busy_ = false;
}

void Pace::end_stretch(Nanos now) noexcept {
  const Nanos took = now - std::exchange(began_, now);
  const uint64_t results = std::exchange(results_, 0);
  if (!std::exchange(held_back_, false)) return;
  time_ += took;
  total_ += results;
}

void Pace::next_phase(Nanos now) noexcept {
  end_stretch(now);
  switch (phase_) {
    case Phase::kRest:
      trial_ = trials_ % 2 == 0 ? Trial::kMore : Trial::kLess;
      return enter(Phase::kBefore, measure());
    case Phase::kBefore: return begin_trial();
    case Phase::kTrial: return end_trial();
  }
}

void Pace::begin_trial() noexcept {
  before_ = speed();
  if (trial_ == Trial::kMore && sit_out_ > 0) {
    --sit_out_;
    before_ = 0;
  }
  if (before_ != 0)
    limit_ = trial_ == Trial::kMore ? std::min(2 * kept_, most_) : std::max(kept_ / 2, kLeast);
  enter(Phase::kTrial, measure());
}

void Pace::end_trial() noexcept {
  const double wanted = trial_ == Trial::kMore ? kGain : trial_ == Trial::kLess ? kSame : kTolerable;
  const bool held = before_ != 0 && speed() >= wanted * before_;
  if (trial_ == Trial::kMore && before_ != 0) {
    if (held) {
      sit_out_next_ = 1;
    } else {
      sit_out_ = trials_ < kRise ? kRise - trials_ : sit_out_next_;
      sit_out_next_ = std::min(2 * sit_out_next_, kMostSatOut);
    }
  }
  if (held) kept_ = limit_;
  limit_ = kept_;
  if (trial_ != Trial::kLessForLosses) ++trials_;
  trial_ = Trial::kMore;
  if (trials_ < kRise) return enter(Phase::kBefore, measure());
  enter(Phase::kRest, std::min(kRest << std::min(trials_ - kRise, 16U), kMostRest));
}

void Pace::bring_forward(Nanos now) noexcept {
  losses_count_from_ = count_ + kLossRest * links_;
  end_stretch(now);
  if (phase_ == Phase::kTrial && trial_ == Trial::kMore) {
    losses_count_from_ = 0;  // it was the trial that lost them
    total_ = 0;
    return end_trial();
  }
  limit_ = kept_;
  trial_ = Trial::kLessForLosses;
  enter(Phase::kBefore, measure());
}

void Pace::enter(Phase phase, uint64_t results_per_link) noexcept {
  phase_ = phase;
  phase_ends_ = count_ + results_per_link * links_;
  time_ = 0;
  total_ = 0;
}

uint64_t Pace::measure() const noexcept {
  return std::min(kMeasure << std::min(trials_, 16U), kMostMeasure);
}

double Pace::speed() const noexcept {
  return time_ > 0 ? static_cast<double>(total_) / static_cast<double>(time_) : 0;
}

}  // namespace sluice::engine
