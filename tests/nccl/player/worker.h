// A thread that does one thing after the other: NCCL's service thread or progress thread of one communicator.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace player {

class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  // Ends what is begun and drops nothing.
  ~Worker() {
    start({});
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // get() gives what `task` threw. An empty task ends the thread.
  std::future<void> start(std::function<void()> task) {
    const bool last = !task;
    std::packaged_task<void()> packaged(last ? std::function<void()>([] {}) : std::move(task));
    std::future<void> done = packaged.get_future();
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(packaged), last});
    changed_.notify_one();
    return done;
  }
  void run(std::function<void()> task) { start(std::move(task)).get(); }

 private:
  struct Task {
    std::packaged_task<void()> packaged;
    bool last;
  };

  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task.packaged();
      if (task.last) return;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace player
