#include "store/leader/step_planner.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/assert.h"

namespace sluice::store {

StepPlanner::StepPlanner(const StepMode& mode, uint64_t current, std::map<uint64_t, uint64_t> contained)
    : mode_(mode), current_(current), contained_(std::move(contained)) {}

Admission StepPlanner::judge(const StagedPush& push) const noexcept {
  if (push.base > current_) return Admission::kFuture;
  const uint64_t age = current_ - push.base;
  if (mode_.kind == StepKind::kSync && age > 0) return Admission::kLate;
  if (mode_.kind == StepKind::kBounded && mode_.stale == StalePush::kRefuse && age > mode_.staleness)
    return Admission::kStale;
  return Admission::kAccepted;
}

Admission StepPlanner::offer(const StagedPush& push, Nanos now) {
  const uint64_t worker = push.identity.worker, number = push.identity.number;
  if (const auto found = contained_.find(worker); found != contained_.end()) {
    if (number == found->second) return Admission::kContained;
    if (number < found->second) return Admission::kSuperseded;
  }
  const auto is_of_worker = [&](const StagedPush& p) { return p.identity.worker == worker; };
  if (std::ranges::any_of(taken_, [&](const StagedPush& p) { return p.identity == push.identity; }))
    return Admission::kWaits;
  if (const auto found = std::ranges::find_if(waiting_, is_of_worker); found != waiting_.end()) {
    if (found->identity == push.identity) return Admission::kWaits;
    if (number < found->identity.number) return Admission::kSuperseded;
    waiting_.erase(found);  // the worker gave it up
  }
  if (const Admission admission = judge(push); admission != Admission::kAccepted) return admission;
  waiting_.push_back(push);
  if (mode_.kind == StepKind::kSync && !grace_ends_ && waiting_.size() >= mode_.quorum)
    grace_ends_ = now + static_cast<Nanos>(mode_.grace_ms) * kMillisecond;
  return Admission::kAccepted;
}

void StepPlanner::withdraw(PushIdentity identity) {
  std::erase_if(waiting_, [&](const StagedPush& p) { return p.identity == identity; });
  if (waiting_.size() < mode_.quorum) grace_ends_.reset();
}

std::optional<Nanos> StepPlanner::deadline() const noexcept {
  return in_progress_ ? std::nullopt : grace_ends_;
}

std::optional<PlannedStep> StepPlanner::next_step(Nanos now, std::vector<StagedPush>& stale) {
  if (in_progress_) return std::nullopt;
  if (mode_.kind == StepKind::kSync) {
    if (!grace_ends_ || now < *grace_ends_) return std::nullopt;
    grace_ends_.reset();
    taken_.assign(waiting_.begin(), waiting_.end());
    waiting_.clear();
    return start();
  }
  while (!waiting_.empty()) {
    const StagedPush push = waiting_.front();
    waiting_.pop_front();
    if (judge(push) == Admission::kAccepted) {
      taken_ = {push};
      return start();
    }
    stale.push_back(push);
  }
  return std::nullopt;
}

PlannedStep StepPlanner::start() {
  PlannedStep step{.version = current_ + 1, .pushes = taken_};
  for (StagedPush& push : step.pushes) {
    const uint64_t age = current_ - push.base;
    if (mode_.kind == StepKind::kBounded && age > mode_.staleness)
      push.weight *= static_cast<float>(mode_.staleness + 1) / static_cast<float>(age + 1);
  }
  std::ranges::sort(step.pushes, {}, [](const StagedPush& p) { return p.identity.worker; });
  in_progress_ = true;
  return step;
}

std::vector<StagedPush> StepPlanner::committed() {
  SLUICE_ASSERT(in_progress_);
  in_progress_ = false;
  ++current_;
  for (const StagedPush& push : taken_) contained_[push.identity.worker] = push.identity.number;
  if (contained_.size() > 2 * kRemembered) forget_oldest();
  taken_.clear();
  if (mode_.kind != StepKind::kSync) return {};
  grace_ends_.reset();
  const std::vector<StagedPush> late(waiting_.begin(), waiting_.end());
  waiting_.clear();
  return late;
}

// Clients number pushes by the time, so the lowest numbers are the oldest.
void StepPlanner::forget_oldest() {
  std::vector<uint64_t> numbers;
  for (const auto& [worker, number] : contained_) numbers.push_back(number);
  const auto last = numbers.begin() + kRemembered - 1;
  std::ranges::nth_element(numbers, last, std::greater());
  std::erase_if(contained_, [&](const auto& entry) { return entry.second < *last; });
}

void StepPlanner::abandoned() {
  SLUICE_ASSERT(in_progress_);
  in_progress_ = false;
  // A worker that has pushed again meanwhile has given the push up.
  std::erase_if(taken_, [&](const StagedPush& given_up) {
    return std::ranges::any_of(
        waiting_, [&](const StagedPush& p) { return p.identity.worker == given_up.identity.worker; });
  });
  // An owner that has replaced another one would wait for deltas that went there.
  for (StagedPush& push : taken_) push.is_early = false;
  waiting_.insert(waiting_.begin(), taken_.begin(), taken_.end());
  taken_.clear();
  if (mode_.kind == StepKind::kSync) grace_ends_ = 0;  // the grace is over
}

}  // namespace sluice::store
