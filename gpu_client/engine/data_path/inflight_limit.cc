#include "gpu_client/engine/data_path/inflight_limit.h"

#include <algorithm>
#include <utility>

namespace sluice::engine {

InflightLimit::InflightLimit(uint32_t most, uint32_t first, uint64_t at_once) noexcept
    : most_(std::max(most, 1U)), at_once_(at_once), limit_(std::min(first, most_)), accepted_(limit_) {
  enter(Phase::kBefore, measure());
}

void InflightLimit::result(bool first, bool losses, uint64_t bytes, Nanos now) noexcept {
  if (busy_) {
    bytes_ += bytes;
  } else {
    busy_ = true;
    was_limited_ = false;
    began_ = now;
    bytes_ = 0;
  }
  if (phase_ == Phase::kTrial && limit_ > accepted_) {
    // Only this rank goes back to the old limit, and that slows all ranks down to it.
    const auto took = static_cast<double>(time_ + now - began_);
    if (took * before_ * kHopeless > expected_)
      limit_ = accepted_, before_ = 0, failed_trials_ = kMostFailedTrials;
  }
  if (!first) return;
  ++clock_;
  if (losses && phase_ == Phase::kRest && clock_ >= losses_count_from_) {
    loss_rest_ = std::min(2 * loss_rest_, kMostLossRest);
    losses_count_from_ = clock_ + loss_rest_;
    rest_ends_ = phase_ends_;
    trial_ = Trial::kLessForLosses;
    end_interval(now);
    enter(Phase::kBefore, measure());
  } else if (clock_ >= phase_ends_) {
    next_phase(now);
  }
}

void InflightLimit::idle(Nanos now) noexcept {
  if (busy_) end_interval(now);
  busy_ = false;
}

void InflightLimit::note_others() noexcept {
  has_others_ = true;
  if (phase_ == Phase::kTrial) limit_ = accepted_, before_ = 0;
}

void InflightLimit::restart() noexcept {
  const uint32_t limit = accepted_;
  const Nanos round_trip = round_trip_;
  *this = InflightLimit(most_, kFirst, at_once_);
  round_trip_ = round_trip;
  limit_ = accepted_ = limit;
  enter(Phase::kRest, kRestartRest);
}

void InflightLimit::end_interval(Nanos now) noexcept {
  const Nanos took = now - std::exchange(began_, now);
  const uint64_t bytes = std::exchange(bytes_, 0);
  if (!std::exchange(was_limited_, false)) return;
  time_ += took;
  total_ += bytes;
}

void InflightLimit::next_phase(Nanos now) noexcept {
  end_interval(now);
  switch (phase_) {
    case Phase::kRest:
      trial_ = trials_ % 2 == 0 ? Trial::kMore : Trial::kLess;
      return enter(Phase::kBefore, measure());
    case Phase::kBefore: return begin_trial();
    case Phase::kTrial: return end_trial();
  }
}

void InflightLimit::begin_trial() noexcept {
  before_ = has_others_ ? 0 : speed();
  expected_ = static_cast<double>(total_);
  const auto wanted = 2.0 * accepted_ * static_cast<double>(at_once_);
  if (trial_ == Trial::kMore && wanted > before_ * static_cast<double>(kLongestQueue + round_trip_))
    before_ = 0;
  // The number of the trial decides, so that ranks with different outcomes run later trials together.
  if (trial_ == Trial::kMore && trials_ / 2 % (1U << failed_trials_) != 0) before_ = 0;
  if (before_ != 0)
    limit_ = trial_ == Trial::kMore ? std::min(2 * accepted_, most_) : std::max(accepted_ / 2, kLeast);
  enter(Phase::kTrial, measure());
}

void InflightLimit::end_trial() noexcept {
  if (before_ != 0 && speed() != 0) {
    const double required = trial_ == Trial::kMore ? kGain : trial_ == Trial::kLess ? kSame : kTolerable;
    const bool succeeded = speed() >= required * before_;
    if (succeeded) accepted_ = limit_;
    if (trial_ == Trial::kMore)
      failed_trials_ = succeeded ? 0 : std::min(failed_trials_ + 1, kMostFailedTrials);
  }
  limit_ = accepted_;
  if (trial_ == Trial::kLessForLosses) return enter(Phase::kRest, std::max(rest_ends_, clock_ + 1) - clock_);
  ++trials_;
  trial_ = Trial::kMore;
  if (trials_ < kInitialTrials) return enter(Phase::kBefore, measure());
  enter(Phase::kRest, std::min(kRest << std::min(trials_ - kInitialTrials, 16U), kMostRest));
}

void InflightLimit::enter(Phase phase, uint64_t results) noexcept {
  phase_ = phase;
  phase_ends_ = clock_ + results;
  time_ = 0;
  total_ = 0;
  has_others_ = false;
}

uint64_t InflightLimit::measure() const noexcept {
  return std::min(kMeasure << std::min(trials_, 16U), kMostMeasure);
}

double InflightLimit::speed() const noexcept {
  return time_ > 0 ? static_cast<double>(total_) / static_cast<double>(time_) : 0;
}

}  // namespace sluice::engine
