#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/units.h"

namespace sluice::transport::inproc {

// Signal is the condition that an inproc context sleeps on.
class Signal {
 public:
  // An endpoint of the context has work. Any thread.
  void notify_work() {
    const std::lock_guard lock(mutex_);
    work_ = true;
    changed_.notify_one();
  }

  // Any thread. Only wait() consumes a wake(), not poll(). So a wake() between the owner's check of its own
  // queues and its wait() is never lost.
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }

  // Owner thread, before it processes all work notified so far.
  void clear_work() {
    const std::lock_guard lock(mutex_);
    work_ = false;
  }

  // Owner thread. timeout < 0: no limit.
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
