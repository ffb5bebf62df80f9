// The shares of a reducer's sessions as its conductor and its lanes use them. Whichever lane comes first does
// the turn that is due; none waits for another, nor for the conductor.
#pragma once

#include <atomic>
#include <mutex>

#include "reducer/fair/fair_shares.h"

namespace sluice::reducer {

class FairPool {
 public:
  // ---- lane threads ----
  // One load when no turn is due.
  void turn(Nanos now) noexcept {
    if (now < next_.load(std::memory_order_relaxed)) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || now < next_.load(std::memory_order_relaxed)) return;
    next_.store(now + FairShares::kTurn, std::memory_order_relaxed);
    shares_.turn(now);
  }

  // ---- conductor thread ----
  void add(FairShares::Member& member) {
    const std::lock_guard lock(mutex_);
    shares_.add(member);
  }
  // After it no lane's turn looks at the member or its meters.
  void remove(FairShares::Member& member) noexcept {
    const std::lock_guard lock(mutex_);
    shares_.remove(member);
  }
  // `look` is given the shares while no turn changes them.
  template <typename F>
  auto with(F&& look) const {
    const std::lock_guard lock(mutex_);
    return look(shares_);
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<Nanos> next_{0};
  FairShares shares_;
};

}  // namespace sluice::reducer
