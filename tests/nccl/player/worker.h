// Class Worker runs tasks one after another on a thread: NCCL's service thread or progress thread of one
// communicator.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "tests/nccl/player/failure.h"

namespace player {

// The result of a task: empty, or a function that throws the exception of the task in the waiting thread.
// Threads do not share an exception object, because the thread sanitizer does not see its reference count in
// the C++ library.
using Outcome = std::function<void()>;

class Worker {
 public:
  class StartedTask {
   public:
    explicit StartedTask(std::future<Outcome> outcome) : outcome_(std::move(outcome)) {}
    // Waits for the task and throws its exception.
    void get() {
      if (const Outcome outcome = outcome_.get()) outcome();
    }

   private:
    std::future<Outcome> outcome_;
  };

  Worker() : thread_([this] { work(); }) {}
  // Runs all queued tasks before it returns.
  ~Worker() {
    push(std::packaged_task<Outcome()>());
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  StartedTask start(std::function<void()> task) {
    std::packaged_task<Outcome()> packaged([task = std::move(task)] { return outcome_of(task); });
    std::future<Outcome> outcome = packaged.get_future();
    push(std::move(packaged));
    return StartedTask(std::move(outcome));
  }
  void run(std::function<void()> task) { start(std::move(task)).get(); }

 private:
  static Outcome outcome_of(const std::function<void()>& task) {
    try {
      task();
      return {};
    } catch (const CallFailed& failed) {
      return [call = failed.call, result = failed.result] { throw CallFailed(call, result); };
    } catch (const std::exception& e) {
      return [what = std::string(e.what())] { throw Failure(what); };
    }
  }

  void push(std::packaged_task<Outcome()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }

  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      std::packaged_task<Outcome()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (!task.valid()) return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Outcome()>> tasks_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace player
