#include "store/server/step_leader.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "core/bytes.h"
#include "core/clock.h"
#include "store/server/time_left.h"

namespace sluice::store {
namespace {

// Between attempts at a step that failed, for example because a reducer is gone.
constexpr Nanos kRetryPause = 50 * kMillisecond;

wire::PushOutcome outcome_of(Admission admission) {
  switch (admission) {
    case Admission::kContained: return wire::PushOutcome::kContained;
    case Admission::kSuperseded: return wire::PushOutcome::kSuperseded;
    case Admission::kLate: return wire::PushOutcome::kLate;
    case Admission::kStale: return wire::PushOutcome::kStale;
    default: return wire::PushOutcome::kFuture;
  }
}

}  // namespace

StepLeader::StepLeader(std::shared_ptr<HostedModel> model, Coordinator& coordinator, ConnectToStore connect,
                       Log log)
    : model_(std::move(model)),
      coordinator_(coordinator),
      key_(state_key(model_->spec().name)),
      generation_(model_->state().shards[0].generation),
      links_(std::move(connect)),
      log_(std::move(log)),
      planner_(model_->spec().mode, model_->state().version, model_->contained(0)),
      thread_([this] { run(); }) {}

StepLeader::~StepLeader() {
  end();
  thread_.join();
  counters().set_unavailable({});
}

void StepLeader::end() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
}

bool StepLeader::has_ended() const {
  if (!leads()) return true;
  const std::scoped_lock lock(mutex_);
  return has_ended_;
}

// A swap whose answer was lost may be carried out later. Another leader then begins with the new version.
bool StepLeader::knows_version() const {
  return model_->state().version == planner_.current();
}

bool StepLeader::leads() const {
  return model_->is_owner(0) && model_->state().shards[0].generation == generation_;
}

Result<wire::PushAnswer> StepLeader::push(const StagedPush& push, Nanos deadline) {
  Lock lock(mutex_);
  const auto answer = [&](wire::PushOutcome outcome) {
    return wire::PushAnswer{.outcome = outcome, .version = planner_.current()};
  };
  if (!unavailable_.empty()) return fail(Errc::kReset, unavailable_);
  if (has_ended_) return fail(Errc::kBadView, "another reducer leads the model");
  const Admission admission = planner_.offer(push, monotonic_now());
  if (admission != Admission::kAccepted && admission != Admission::kWaits)
    return answer(outcome_of(admission));
  const uint64_t worker = push.identity.worker, number = push.identity.number;
  Waiter& waiter = waiters_[worker];
  ++waiter.threads;
  const auto leave = [&](void*) {
    if (const auto at = waiters_.find(worker); --at->second.threads == 0) waiters_.erase(at);
  };
  const std::unique_ptr<void, decltype(leave)> leaves(this, leave);  // with the lock
  // Accepted again after kNotStaged, it waits again. Else the outcome stays for all who wait: a connection
  // that the client has given up may wait beside the one that it uses.
  if (waiter.number != number || admission == Admission::kAccepted)
    waiter = {.number = number, .outcome = {}, .threads = waiter.threads};
  changed_.notify_all();
  // The entry may be replaced by a later push of the worker meanwhile.
  const auto found = [&]() -> Waiter* {
    const auto at = waiters_.find(worker);
    return at != waiters_.end() && at->second.number == number ? &at->second : nullptr;
  };
  const auto is_over = [&] {
    const Waiter* const mine = found();
    return is_stopping_ || has_ended_ || !unavailable_.empty() || mine == nullptr ||
           mine->outcome.has_value();
  };
  const bool is_in_time = changed_.wait_for(lock, time_left(deadline), is_over);
  if (const Waiter* const mine = found(); mine != nullptr && mine->outcome) {
    return answer(*mine->outcome);
  }
  if (found() == nullptr) return answer(wire::PushOutcome::kSuperseded);
  if (!is_in_time) {
    if (!failure_.empty()) return fail(Errc::kTimeout, "steps cannot be made: " + failure_);
    const uint32_t quorum = model_->spec().mode.quorum;
    return fail(Errc::kTimeout,
                "no step contains the push yet" + (planner_.waiting() >= quorum
                                                       ? std::string()
                                                       : ": " + std::to_string(planner_.waiting()) + " of " +
                                                             std::to_string(quorum) + " pushes are here"));
  }
  if (!unavailable_.empty()) return fail(Errc::kReset, unavailable_);
  return has_ended_ ? fail(Errc::kBadView, "another reducer leads the model")
                    : fail(Errc::kShutdown, "the reducer stops");
}

uint64_t StepLeader::wait_current(uint64_t at_least, Nanos deadline) {
  Lock lock(mutex_);
  changed_.wait_for(lock, time_left(deadline),
                    [&] { return is_stopping_ || has_ended_ || planner_.current() >= at_least; });
  return planner_.current();
}

void StepLeader::resolve(std::span<const StagedPush> pushes, wire::PushOutcome outcome) {
  for (const StagedPush& push : pushes) {
    const auto found = waiters_.find(push.identity.worker);
    if (found != waiters_.end() && found->second.number == push.identity.number)
      found->second.outcome = outcome;
  }
}

bool StepLeader::claim() {
  while (leads()) {
    CoordinatedState state = model_->state();
    const auto swapped = coordinator_.compare_and_swap(key_, state.revision, state_text(state));
    if (swapped && swapped->is_done()) {
      state.revision = swapped->entry->revision;
      return model_->apply(state).has_value();
    }
    refresh();
    Lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::nanoseconds(kRetryPause), [&] { return is_stopping_; })) break;
  }
  return false;
}

void StepLeader::run() {
  const bool has_claimed = claim();
  Lock lock(mutex_);
  has_ended_ = !has_claimed || !knows_version();
  while (!is_stopping_ && !has_ended_) {
    std::vector<StagedPush> stale;
    const auto step = planner_.next_step(monotonic_now(), stale);
    resolve(stale, wire::PushOutcome::kStale);
    if (!stale.empty()) changed_.notify_all();
    if (!step) {
      if (const auto grace = planner_.deadline()) {
        changed_.wait_for(lock, time_left(*grace));
      } else {
        changed_.wait(lock);
      }
      continue;
    }
    lock.unlock();
    const auto made = make(*step);
    lock.lock();
    if (made) {
      counters().steps.add();
      counters().set_unavailable({});
      unavailable_.clear();
      failure_.clear();
      resolve(step->pushes, wire::PushOutcome::kContained);
      resolve(planner_.committed(), wire::PushOutcome::kLate);
    } else {
      planner_.abandoned();
      if (made.error().code == Errc::kBadSequence) {
        resolve(step->pushes, wire::PushOutcome::kNotStaged);
        for (const StagedPush& push : step->pushes) planner_.withdraw(push.identity);
      } else {
        counters().failed_steps.add();
        counters().set_unavailable("steps cannot be made: " + made.error().text);
        const bool is_new = std::exchange(failure_, made.error().text) != made.error().text;
        lock.unlock();
        if (is_new) log_("model \"" + model_->spec().name + "\": a step is made again: " + made.error().text);
        refresh();
        lock.lock();
        has_ended_ = !leads() || !knows_version();
        changed_.wait_for(lock, std::chrono::nanoseconds(kRetryPause), [&] { return is_stopping_; });
      }
    }
    changed_.notify_all();
  }
  changed_.notify_all();
}

Result<void> StepLeader::make(const PlannedStep& step) {
  const CoordinatedState state = model_->state();
  if (state.shards[0].generation != generation_)
    return fail(Errc::kBadView, "another reducer has led the model");
  SLUICE_RETURN_IF_ERROR(prepare(step, state));
  SLUICE_RETURN_IF_ERROR(commit(state, step.version));
  announce(step.version, model_->state());
  return {};
}

void StepLeader::refresh() {
  const auto entry = coordinator_.get(key_);
  if (!entry || !*entry) return;
  const auto state = parse_state(**entry);
  if (state) static_cast<void>(model_->apply(*state));
}

Result<void> StepLeader::prepare(const PlannedStep& step, const CoordinatedState& state) {
  const std::vector<ShardHolders>& shards = state.shards;
  const uint64_t attempt = ++attempts_;
  std::vector<std::byte> pushes(step.pushes.size() * wire::kStepPushBytes);
  for (size_t i = 0; i < step.pushes.size(); ++i) {
    std::byte* const at = pushes.data() + i * wire::kStepPushBytes;
    store_le(at, step.pushes[i].identity.worker);
    store_le(at + 8, step.pushes[i].identity.number);
    store_le(at + 16, std::bit_cast<uint32_t>(step.pushes[i].weight));
    at[20] = std::byte{step.pushes[i].is_early};
  }
  Result<void> result;
  size_t sent = 0;
  for (; sent < shards.size() && result; ++sent) {
    result = links_.send(shards[sent].owner,
                         wire::Step{.model = model_->id(),
                                    .shard = static_cast<uint32_t>(sent),
                                    .generation = state.shards[sent].generation,
                                    .revision = static_cast<uint64_t>(state.revision),
                                    .attempt = attempt,
                                    .version = step.version,
                                    .bytes = pushes.size()},
                         {pushes});
  }
  // Every request that was sent has an answer, also after another has failed. It may take long: the deltas of
  // an early step arrive meanwhile, and the copy gets the version.
  for (size_t i = 0; i < sent; ++i) {
    auto answer = links_.receive<wire::Done>(shards[i].owner, until_changed(state.revision));
    if (!answer && result) result = tl::unexpected(answer.error());
  }
  return result;
}

// An answer that is lost leaves the result open, so the swap is repeated until the coordinator answers:
// nothing else may happen to the model before.
Result<void> StepLeader::commit(const CoordinatedState& prepared, uint64_t version) {
  CoordinatedState next = prepared;
  next.version = version;
  const std::string text = state_text(next);
  for (;;) {
    auto swapped = coordinator_.compare_and_swap(key_, prepared.revision, text);
    if (swapped) {
      {
        const std::scoped_lock lock(mutex_);
        unavailable_.clear();
      }
      counters().set_unavailable({});
      if (!swapped->entry) return fail(Errc::kBadView, "the model was deleted");
      if (swapped->is_done()) {
        next.revision = swapped->entry->revision;
        return model_->apply(next);
      }
      // A shard has changed hands: before the swap, or after one whose answer was lost.
      SLUICE_ASSIGN_OR_RETURN(now, parse_state(*swapped->entry));
      SLUICE_RETURN_IF_ERROR(model_->apply(now));
      const bool is_mine = now.version == version && now.shards[0].generation == generation_;
      return is_mine ? Result<void>() : fail(Errc::kBadView, "a shard of the model has changed hands");
    }
    Lock lock(mutex_);
    unavailable_ = "the coordinator does not answer, so no push is accepted: " + swapped.error().text;
    counters().set_unavailable(unavailable_);
    changed_.notify_all();
    if (changed_.wait_for(lock, std::chrono::nanoseconds(kRetryPause), [&] { return is_stopping_; }))
      return fail(Errc::kShutdown, "the reducer stops");
  }
}

PeerLinks::IsOver StepLeader::until_changed(Revision revision) {
  return [this, revision] {
    if (model_->state().revision != revision) return true;
    const std::scoped_lock lock(mutex_);
    return is_stopping_;
  };
}

void StepLeader::announce(uint64_t version, const CoordinatedState& state) {
  const std::vector<ShardHolders>& shards = state.shards;
  // Other holders learn it from the state. Nor do the workers wait long for an owner that does not run.
  const auto is_over = [has_changed = until_changed(state.revision),
                        deadline = monotonic_now() + PeerLinks::kAnswerTime] {
    return has_changed() || monotonic_now() >= deadline;
  };
  // An owner that does not get it learns it from the next step. Its readers wait until then, so once more.
  std::vector<bool> told(shards.size());
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::vector<bool> sent(shards.size());
    for (size_t i = 0; i < shards.size(); ++i) {
      if (told[i]) continue;
      const wire::Committed message{
          .model = model_->id(), .shard = static_cast<uint32_t>(i), .version = version};
      sent[i] = links_.send(shards[i].owner, message).has_value();
    }
    for (size_t i = 0; i < shards.size(); ++i) {
      if (sent[i]) told[i] = links_.receive<wire::Done>(shards[i].owner, is_over).has_value();
    }
  }
}

}  // namespace sluice::store
