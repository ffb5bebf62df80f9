#include "gpu_client/store/transfer_turns.h"

#include <algorithm>
#include <chrono>

namespace sluice::store_client {

TransferTurns::TransferTurns(const char* thread_name) {
  free_.reserve(kAtOnce);
  for (uint32_t i = 0; i < kAtOnce; ++i) free_.push_back(&threads_.emplace_back(thread_name));
}

void TransferTurns::grant() {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end() && !free_.empty(); ++waiter) {
    if (waiter->threads != nullptr) continue;
    waiter->threads = free_.back();
    free_.pop_back();
    waiter->granted.notify_one();
  }
}

Result<TransferTurns::Turn> TransferTurns::take(Nanos deadline) {
  std::unique_lock lock(mutex_);
  const auto mine = waiters_.emplace(waiters_.end());
  grant();
  const std::chrono::nanoseconds time(std::max<Nanos>(deadline - monotonic_now(), 0));
  if (mine->granted.wait_for(lock, time, [&] { return mine->threads != nullptr; })) return Turn(*this, mine);
  waiters_.erase(mine);
  return fail(Errc::kTimeout, "other transfers of this process are in progress");
}

size_t TransferTurns::waiting() {
  const std::lock_guard lock(mutex_);
  return waiters_.size() - (kAtOnce - free_.size());
}

TransferTurns::Turn::~Turn() {
  if (turns_ == nullptr) return;
  const std::lock_guard lock(turns_->mutex_);
  turns_->free_.push_back(waiter_->threads);
  turns_->waiters_.erase(waiter_);
  turns_->grant();
}

}  // namespace sluice::store_client
