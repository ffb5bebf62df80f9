#include "gpu_client/store/transfer_turns.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>

namespace sluice::store_client {
namespace {

struct TurnsOfProcess {
  const pid_t process = ::getpid();
  std::mutex mutex;
  std::map<std::string, PoolTurns> pools;  // by the addresses of the reducers; never removed
};

// After a fork, threads that the child does not have may hold turns and mutexes: the child gets new ones, and
// those of its parent are never freed.
TurnsOfProcess& turns_of_process() {
  static std::atomic<TurnsOfProcess*> current{nullptr};
  TurnsOfProcess* found = current.load(std::memory_order_acquire);
  while (found == nullptr || found->process != ::getpid()) {
    auto* const mine = new TurnsOfProcess;
    if (current.compare_exchange_strong(found, mine, std::memory_order_acq_rel)) return *mine;
    delete mine;
  }
  return *found;
}

}  // namespace

PoolTurns& turns_of(std::span<const config::Endpoint> reducers) {
  std::string addresses;
  for (const config::Endpoint& reducer : reducers) addresses += config::to_string(reducer) + ",";
  TurnsOfProcess& all = turns_of_process();
  const std::lock_guard lock(all.mutex);
  return all.pools[addresses];
}

void TransferTurns::grant() {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end() && running_ < kAtOnce; ++waiter) {
    if (waiter->has_turn) continue;
    waiter->has_turn = true;
    ++running_;
    waiter->granted.notify_one();
  }
}

Result<TransferTurns::Turn> TransferTurns::take(Nanos deadline) {
  std::unique_lock lock(mutex_);
  const auto mine = waiters_.emplace(waiters_.end());
  grant();
  const std::chrono::nanoseconds time(std::max<Nanos>(deadline - monotonic_now(), 0));
  if (mine->granted.wait_for(lock, time, [&] { return mine->has_turn; })) return Turn(*this, mine);
  waiters_.erase(mine);
  return fail(Errc::kTimeout, "other transfers of this process are in progress");
}

size_t TransferTurns::waiting() {
  const std::lock_guard lock(mutex_);
  return waiters_.size() - running_;
}

TransferTurns::Turn::~Turn() {
  if (turns_ == nullptr) return;
  const std::lock_guard lock(turns_->mutex_);
  turns_->waiters_.erase(waiter_);
  --turns_->running_;
  turns_->grant();
}

}  // namespace sluice::store_client
