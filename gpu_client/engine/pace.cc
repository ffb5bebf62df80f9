#include "gpu_client/engine/pace.h"

#include <algorithm>
#include <utility>

namespace sluice::engine {

Pace::Pace(uint32_t most) noexcept
    : most_(std::max(most, 1U)), limit_(std::min(kFirst, most_)), kept_(limit_) {
  enter(Phase::kBefore, measure());
}

void Pace::result(bool first, bool losses, uint64_t bytes, Nanos now) noexcept {
  if (busy_) {
    bytes_ += bytes;
  } else {
    busy_ = true;
    held_back_ = false;
    began_ = now;
    bytes_ = 0;
  }
  if (phase_ == Phase::kTrial && limit_ > kept_) {
    // Only this rank stops, but that stops all.
    const auto took = static_cast<double>(time_ + now - began_);
    if (took * before_ * kHopeless > expected_) limit_ = kept_, before_ = 0, in_vain_ = kMostInVain;
  }
  if (!first) return;
  ++clock_;
  if (losses && phase_ == Phase::kRest && clock_ >= losses_count_from_) {
    loss_rest_ = std::min(2 * loss_rest_, kMostLossRest);
    losses_count_from_ = clock_ + loss_rest_;
    rest_ends_ = phase_ends_;
    trial_ = Trial::kLessForLosses;
    end_stretch(now);
    enter(Phase::kBefore, measure());
  } else if (clock_ >= phase_ends_) {
    next_phase(now);
  }
}

void Pace::idle(Nanos now) noexcept {
  if (busy_) end_stretch(now);
  busy_ = false;
}

void Pace::restart() noexcept {
  const uint32_t limit = kept_;
  *this = Pace(most_);
  limit_ = kept_ = limit;
}

void Pace::end_stretch(Nanos now) noexcept {
  const Nanos took = now - std::exchange(began_, now);
  const uint64_t bytes = std::exchange(bytes_, 0);
  if (!std::exchange(held_back_, false)) return;
  time_ += took;
  total_ += bytes;
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
  expected_ = static_cast<double>(total_);
  // By the number of the trial and not by counting, so that ranks meet again that were of different luck.
  if (trial_ == Trial::kMore && trials_ / 2 % (1U << in_vain_) != 0) before_ = 0;
  if (before_ != 0)
    limit_ = trial_ == Trial::kMore ? std::min(2 * kept_, most_) : std::max(kept_ / 2, kLeast);
  enter(Phase::kTrial, measure());
}

void Pace::end_trial() noexcept {
  if (before_ != 0) {
    const double wanted = trial_ == Trial::kMore ? kGain : trial_ == Trial::kLess ? kSame : kTolerable;
    const bool held = speed() >= wanted * before_;
    if (held) kept_ = limit_;
    if (trial_ == Trial::kMore) in_vain_ = held ? 0 : std::min(in_vain_ + 1, kMostInVain);
  }
  limit_ = kept_;
  if (trial_ == Trial::kLessForLosses) return enter(Phase::kRest, std::max(rest_ends_, clock_ + 1) - clock_);
  ++trials_;
  trial_ = Trial::kMore;
  if (trials_ < kRise) return enter(Phase::kBefore, measure());
  enter(Phase::kRest, std::min(kRest << std::min(trials_ - kRise, 16U), kMostRest));
}

void Pace::enter(Phase phase, uint64_t results) noexcept {
  phase_ = phase;
  phase_ends_ = clock_ + results;
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
