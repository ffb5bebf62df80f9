// What an inproc context sleeps on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/units.h"

namespace sluice::transport::inproc {

class Signal {
 public:
  // An endpoint of the context has something to do. Any thread.
  void work() {
    const std::lock_guard lock(mutex_);
    work_ = true;
    changed_.notify_one();
  }

  // Any thread. Outlives a poll(): only wait() consumes it, so a wake() between the owner's look at its own
  // queues and its wait() is never lost.
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }

  // Owner: everything signalled up to here is about to be looked at.
  void begin_turn() {
    const std::lock_guard lock(mutex_);
    work_ = false;
  }

  // Owner. timeout < 0: no limit.
  void wait(Nanos timeout) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return work_ || woken_; };
    if (timeout < 0) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(timeout), ready);
    }
    woken_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool work_ = false;
  bool woken_ = false;
};

}  // namespace sluice::transport::inproc
