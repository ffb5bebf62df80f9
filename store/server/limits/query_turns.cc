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
  std::unique_lock lock(mutex_);
  std::shared_ptr<Job>& known = jobs_[name];
  if (!known) known = std::make_shared<Job>();
  const std::shared_ptr<Job> job = known;
  job->name = name;
  ++job->threads;
  if (!job->ended.wait_for(lock, left(deadline), [&] { return !job->has_turn; })) {
    leave(*job);
    return fail(Errc::kTooMany, "other queries of job " + config::in_quotes(name) + " take too long");
  }
  job->has_turn = true;  // only one thread of a job waits for those of others
  if (!ended_.wait_for(lock, left(deadline), [&] { return running_ < kMostAtOnce; })) {
    job->has_turn = false;
    job->ended.notify_one();
    leave(*job);
    return fail(Errc::kTooMany, "queries of other jobs take too long");
  }
  ++running_;
  return Turn(*this, job);
}

void QueryTurns::end(Job& job) noexcept {
  const std::scoped_lock lock(mutex_);
  --running_;
  ended_.notify_one();
  job.has_turn = false;
  job.ended.notify_one();
  leave(job);
}

void QueryTurns::leave(Job& job) noexcept {
  if (--job.threads == 0) jobs_.erase(job.name);
}

}  // namespace sluice::store
