// Class HardwareQueue simulates a hardware queue of a GPU: a thread that runs enqueued work in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace sluice::cuda_stand_in {

class HardwareQueue {
 public:
  HardwareQueue() : thread_([this] { run(); }) {}
  // Runs all enqueued work first.
  ~HardwareQueue() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    enqueued_.notify_one();
    thread_.join();
  }
  HardwareQueue(const HardwareQueue&) = delete;
  HardwareQueue& operator=(const HardwareQueue&) = delete;

  void enqueue(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    enqueued_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      enqueued_.wait(lock, [this] { return ending_ || !work_.empty(); });
      if (work_.empty()) return;
      auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable enqueued_;
  std::deque<std::function<void()>> work_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sluice::cuda_stand_in
