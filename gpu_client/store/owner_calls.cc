#include "gpu_client/store/owner_calls.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/clock.h"
#include "core/units.h"

namespace sluice::store_client {
namespace {

constexpr Nanos kAnswerTime = 30 * kSecond, kPromptTime = 10 * kSecond;
// Callers that must return soon wait in several short calls. Each may connect for this long: a connection
// that is not ready is lost, so with less time none would ever be.
constexpr Nanos kLeastConnectTime = 5 * kSecond;
// Between two questions whether the creator has started the model, which is answered at once.
constexpr Nanos kStartPause = 100 * kMillisecond;

}  // namespace

Nanos wait_time(Nanos deadline) noexcept {
  return std::clamp<Nanos>(deadline - monotonic_now(), 0, kWaitTime);
}

uint32_t wait_ms(Nanos wait) noexcept {
  return static_cast<uint32_t>(div_ceil(static_cast<uint64_t>(wait), kMillisecond));
}

Nanos answer_deadline(Nanos wait) noexcept {
  return monotonic_now() + wait + kAnswerTime;
}

Nanos prompt_deadline(Nanos wait) noexcept {
  return monotonic_now() + wait + kPromptTime;
}

Result<void> OwnerCalls::run(const OpenModel& model, Nanos deadline, const Task& task, const Before& before) {
  SLUICE_ASSIGN_OR_RETURN(turn, turns_.take(deadline));
  if (before) SLUICE_RETURN_IF_ERROR(before());
  return turn.threads().run(model.shards(), [&](uint32_t shard) -> Result<void> {
    SLUICE_ASSIGN_OR_RETURN(owner, connections_.borrow(model.owners[shard].address, deadline));
    return task(shard, *owner);
  });
}

Result<ConnectionCache::Borrowed> OwnerCalls::leader(const OpenModel& model, Nanos deadline) {
  return connections_.borrow(model.owners.front().address, deadline);
}

Result<wire::CurrentAnswer> OwnerCalls::ask_version(const OpenModel& model, uint64_t at_least,
                                                    Nanos deadline) {
  SLUICE_ASSIGN_OR_RETURN(owner, leader(model, std::max(deadline, monotonic_now() + kLeastConnectTime)));
  const Nanos wait = wait_time(deadline);
  const wire::Current request{.model = model.id, .at_least = at_least, .timeout_ms = wait_ms(wait)};
  SLUICE_RETURN_IF_ERROR(owner->send(request, prompt_deadline()));
  return owner->receive<wire::CurrentAnswer>(prompt_deadline(wait));
}

Result<uint64_t> OwnerCalls::wait_version(const OpenModel& model, uint64_t at_least, Nanos deadline) {
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(answer, ask_version(model, at_least, deadline));
    if (answer.started != 0 && answer.version >= at_least) return answer.version;
    const Nanos left = deadline - monotonic_now();
    if (left > 0) {
      if (answer.started == 0)
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, kStartPause)));
      continue;
    }
    const std::string name = "model \"" + model.shape->spec.name + "\"";
    if (answer.started == 0) {
      return fail(Errc::kTimeout, name +
                                      ": its creator has not uploaded it yet; wait longer, or delete it if " +
                                      "the creator has ended");
    }
    return fail(Errc::kTimeout, name + " is at version " + std::to_string(answer.version) + "; expected " +
                                    std::to_string(at_least));
  }
}

}  // namespace sluice::store_client
