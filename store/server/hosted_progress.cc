// Deltas that arrive while their step is computed, and readers that follow it, of a HostedModel.
#include <algorithm>
#include <chrono>
#include <utility>

#include "store/server/hosted_model.h"
#include "store/server/time_left.h"

namespace sluice::store {
namespace {

// How long a step waits for the begin of an early delta, which is announced when it is sent; it may have been
// sent to an owner that has ended since. Then, how long for its next values.
constexpr auto kBeginTime = std::chrono::seconds(1), kArrivalTime = std::chrono::seconds(10);

}  // namespace

void HostedModel::end() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  arrived_.notify_all();
  computed_.notify_all();
}

// ---- deltas ----

std::shared_ptr<ArrivingDelta> HostedModel::begin_delta(uint32_t shard, PushIdentity identity,
                                                        DeltaBuffer values) {
  auto delta =
      std::make_shared<ArrivingDelta>(ArrivingDelta{.number = identity.number, .values = std::move(values)});
  {
    const std::scoped_lock lock(mutex_);
    arriving_[{shard, identity.worker}] = delta;
  }
  arrived_.notify_all();
  return delta;
}

void HostedModel::advance_delta(ArrivingDelta& delta, uint64_t elements) {
  // A complete delta is staged first, or a step that contains it could be committed before.
  if (elements == layout_.shard_elements()) return;
  {
    const std::scoped_lock lock(mutex_);
    delta.elements = elements;
  }
  arrived_.notify_all();
}

void HostedModel::end_delta(uint32_t shard, uint64_t worker, const std::shared_ptr<ArrivingDelta>& delta) {
  {
    const std::scoped_lock lock(mutex_);
    delta->is_lost = delta->elements < layout_.shard_elements();
    const auto found = arriving_.find({shard, worker});
    if (found != arriving_.end() && found->second == delta) arriving_.erase(found);
  }
  arrived_.notify_all();
}

std::shared_ptr<ArrivingDelta> HostedModel::find_delta(uint32_t shard, PushIdentity identity) const {
  const std::pair<uint32_t, uint64_t> key{shard, identity.worker};
  if (const auto found = staged_.find(key); found != staged_.end() && found->second.number == identity.number)
    return std::make_shared<ArrivingDelta>(ArrivingDelta{
        .number = identity.number, .values = found->second.values, .elements = layout_.shard_elements()});
  const auto found = arriving_.find(key);
  return found != arriving_.end() && found->second->number == identity.number ? found->second : nullptr;
}

Result<std::vector<std::shared_ptr<ArrivingDelta>>> HostedModel::find_deltas(
    Lock& lock, uint32_t shard, std::span<const StepPush> pushes) {
  std::vector<std::shared_ptr<ArrivingDelta>> deltas;
  const auto latest_begin = std::chrono::steady_clock::now() + kBeginTime;
  for (const StepPush& push : pushes) {
    auto delta = find_delta(shard, push.identity);
    if (push.is_early) {
      const auto has_begun = [&] {
        if (delta == nullptr) delta = find_delta(shard, push.identity);
        return delta != nullptr || is_ending_;
      };
      arrived_.wait_until(lock, latest_begin, has_begun);
    }
    const bool is_complete = delta != nullptr && delta->elements == layout_.shard_elements();
    if (delta == nullptr || (!is_complete && !push.is_early))
      return fail(Errc::kBadSequence,
                  "the delta of worker " + std::to_string(push.identity.worker) + " is not staged");
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

Result<uint64_t> HostedModel::wait_arrived(Lock& lock, std::span<const std::shared_ptr<ArrivingDelta>> deltas,
                                           uint64_t done) {
  const ArrivingDelta* slowest = nullptr;
  const auto has_more = [&] {
    slowest = std::ranges::min_element(deltas, {}, [](const auto& d) { return d->elements; })->get();
    return slowest->elements > done || is_ending_ ||
           std::ranges::any_of(deltas, [](const auto& d) { return d->is_lost; });
  };
  if (!arrived_.wait_for(lock, kArrivalTime, has_more) || slowest->elements <= done)
    return fail(Errc::kBadSequence, "a delta does not arrive: its worker or its connection has ended");
  return slowest->elements;
}

// ---- readers ----

void HostedModel::begin_reader(uint32_t shard, const std::shared_ptr<VersionReader>& reader) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = shards_.find(shard); found != shards_.end()) found->second->readers.insert(reader);
}

void HostedModel::end_reader(uint32_t shard, const std::shared_ptr<VersionReader>& reader) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = shards_.find(shard); found != shards_.end()) found->second->readers.erase(reader);
}

void HostedModel::update_progress(Shard& shard, bool is_over) {
  if (shard.progress == nullptr) return;
  StepProgress& progress = *shard.progress;
  if (progress.state == StepProgress::State::kPrepared && shard.files.committed() >= progress.version) {
    progress.state = StepProgress::State::kCommitted;
  } else if (is_over) {
    progress.state = StepProgress::State::kAbandoned;
  } else {
    return;
  }
  progress.view = VersionView();
  shard.progress.reset();
  computed_.notify_all();
}

Result<HostedModel::ReadableVersion> HostedModel::follow(uint32_t index, uint64_t version, Nanos deadline) {
  Lock lock(mutex_);
  const auto found = shards_.find(index);
  if (found == shards_.end())
    return fail(Errc::kBadView, "this reducer does not have shard " + std::to_string(index));
  Shard& shard = *found->second;
  const auto is_owned = [&] { return shard.holders.owner == self_; };
  const auto is_committed = [&] { return shard.files.committed().value_or(0) >= version; };
  const auto can_follow = [&] { return shard.progress != nullptr && shard.progress->version == version; };
  computed_.wait_for(lock, time_left(deadline),
                     [&] { return is_ending_ || !is_owned() || is_committed() || can_follow(); });
  if (is_ending_) return fail(Errc::kShutdown, "the reducer stops");
  if (can_follow())
    return ReadableVersion{
        .view = shard.progress->view.again(), .progress = shard.progress, .steps = shard.progress->steps};
  if (is_owned() && !is_committed())
    return fail(Errc::kTimeout, "version " + std::to_string(version) + " of model \"" + spec_.name +
                                    "\" is not in progress yet");
  lock.unlock();
  return view(index, version);
}

bool HostedModel::wait_computed(const StepProgress* progress, uint64_t elements) {
  if (progress == nullptr) return true;
  Lock lock(mutex_);
  const auto is_abandoned = [&] { return progress->state == StepProgress::State::kAbandoned || is_ending_; };
  computed_.wait(lock, [&] { return progress->elements >= elements || is_abandoned(); });
  return !is_abandoned();
}

bool HostedModel::wait_committed(const StepProgress& progress, Nanos deadline) {
  using enum StepProgress::State;
  Lock lock(mutex_);
  computed_.wait_for(lock, time_left(deadline), [&] {
    return progress.state == kCommitted || progress.state == kAbandoned || is_ending_;
  });
  return progress.state == kCommitted;
}

}  // namespace sluice::store
