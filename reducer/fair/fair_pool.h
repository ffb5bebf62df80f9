// Class FairPool shares one FairShares between the lanes and the control loop of a reducer.
//
// The first lane that finds an update due runs it. No lane waits for another lane or for the control loop.
#pragma once

#include <atomic>
#include <mutex>

#include "reducer/fair/fair_shares.h"

namespace sluice::reducer {

class FairPool {
 public:
  // ---- lane threads ----
  // Costs one load when no update is due.
  void update(Nanos now) noexcept {
    if (now < next_update_.load(std::memory_order_relaxed)) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || now < next_update_.load(std::memory_order_relaxed)) return;
    next_update_.store(now + FairShares::kUpdateInterval, std::memory_order_relaxed);
    shares_.update(now);
  }

  // ---- control thread ----
  void add(FairShares::Member& member) {
    const std::lock_guard lock(mutex_);
    shares_.add(member);
  }
  // Afterwards no update uses the member or its meters.
  void remove(FairShares::Member& member) noexcept {
    const std::lock_guard lock(mutex_);
    shares_.remove(member);
  }
  // Calls `visit` with the shares while no update changes them.
  template <typename F>
  auto with(F&& visit) const {
    const std::lock_guard lock(mutex_);
    return visit(shares_);
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<Nanos> next_update_{0};
  FairShares shares_;
};

}  // namespace sluice::reducer
