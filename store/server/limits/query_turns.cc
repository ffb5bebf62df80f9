#include "store/server/limits/query_turns.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "config/printable_text.h"
#include "core/clock.h"

namespace sluice::store {
namespace {

std::chrono::nanoseconds left(Nanos deadline) {
  return std::chrono::nanoseconds(std::max<Nanos>(deadline - monotonic_now(), 0));
}

}  // namespace

Result<QueryTurns::Turn> QueryTurns::take(const std::string& name, Nanos deadline) {
  std::shared_ptr<Job> job;
  {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<Job>& known = jobs_[name];
    if (!known) known = std::make_shared<Job>();
    known->name = name;
    ++known->threads;
    job = known;
  }
  if (!job->mutex.try_lock_for(left(deadline))) {
    leave(*job);
    return fail(Errc::kTooMany, "other queries of job " + config::in_quotes(name) + " take too long");
  }
  if (!free_.try_acquire_for(left(deadline))) {
    job->mutex.unlock();
    leave(*job);
    return fail(Errc::kTooMany, "queries of other jobs take too long");
  }
  return Turn(*this, std::move(job));
}

void QueryTurns::end(Job& job) noexcept {
  free_.release();
  job.mutex.unlock();
  leave(job);
}

void QueryTurns::leave(Job& job) noexcept {
  const std::scoped_lock lock(mutex_);
  if (--job.threads == 0) jobs_.erase(job.name);
}

}  // namespace sluice::store
