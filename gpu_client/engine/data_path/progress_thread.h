// Class ProgressThread decides which thread runs a session's ProgressLoop, and blocks the other threads until
// their operations end. One thread at a time runs the loop: the session's own thread as long as the session
// lives, or a caller in wait() or progress_once(). The other callers block on a condition variable, which the
// running thread signals only when one of them waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "core/result.h"
#include "gpu_client/engine/data_path/progress_loop.h"
#include "gpu_client/engine/data_path/stall_meter.h"
#include "transport/transport.h"

namespace sluice::engine {

inline constexpr Nanos kNoDeadline = INT64_MAX;

class ProgressThread {
 public:
  ProgressThread(ProgressLoop& progress_loop, ChunkScheduler& scheduler, transport::Context& context)
      : progress_loop_(progress_loop), scheduler_(scheduler), context_(context) {}
  ~ProgressThread() { stop(); }
  ProgressThread(const ProgressThread&) = delete;

  // Starts the session's own thread. Without it, callers run the loop.
  [[nodiscard]] Result<void> start();
  // Stops and joins the own thread; afterwards callers run the loop. Not from that thread.
  void stop() noexcept;

  // To be called after a change that the loop must see: a submission, a set SessionEndLatch. Makes a system
  // call only if the running thread sleeps. Any thread.
  void notify() noexcept;
  // To be called after a change that a predicate of wait() reads. Any thread.
  void signal() noexcept;

  // Runs one turn, unless another thread runs the loop.
  void progress_once() noexcept;

  // Blocks until done() is true or until `deadline` on the monotonic clock; returns done(). The calling
  // thread calls `done` often, so it must only read atomics.
  template <typename Predicate>
  bool wait(Predicate done, Nanos deadline) noexcept;

  // Current counters of the lane connections.
  [[nodiscard]] ChunkScheduler::Counters counters() noexcept;
  [[nodiscard]] uint64_t operations_done() const noexcept {
    return operations_done_.load(std::memory_order_relaxed);
  }
  // The longest stall until `now` (StallMeter). `open`: an operation is open. Any thread.
  [[nodiscard]] Nanos longest_stall(bool open, Nanos now) const noexcept {
    return stall_meter_.longest(scheduler_.first_unfinished(), open, now);
  }

 private:
  [[nodiscard]] bool try_acquire_loop() noexcept {
    return !running_.exchange(true, std::memory_order_seq_cst);
  }
  void release_loop() noexcept;
  template <typename Predicate>
  void run(Predicate done, Nanos deadline) noexcept;
  void run_turn(Nanos now, unsigned& work) noexcept;
  [[nodiscard]] bool has_open_operation() const noexcept {
    return scheduler_.oldest_operation() != kNoOperation;
  }
  // Before a turn that follows one without work: a stall in progress has lasted until now at least.
  void extend_stall(Nanos now) noexcept {
    static_cast<void>(stall_meter_.extend(scheduler_.first_unfinished(), has_open_operation(), now));
  }
  void sleep(Nanos now, Nanos deadline) noexcept;
  // Blocks until done() is true or no thread runs the loop.
  template <typename Predicate>
  void wait_for_signal(Predicate done, Nanos deadline) noexcept;

  ProgressLoop& progress_loop_;
  ChunkScheduler& scheduler_;
  transport::Context& context_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  // Each flag below is paired with another variable. One side stores the flag and then loads the variable;
  // the other side stores the variable and then loads the flag. All four accesses are sequentially
  // consistent, so at least one side sees the other's store. Each comment names the lost wake-up that the
  // pair prevents.
  std::atomic<bool> running_{false};   // with waiters_: a thread waits while no thread runs the loop
  std::atomic<uint32_t> waiters_{0};   // with Operation::state: an operation ends and no waiter is signalled
  std::atomic<bool> sleeping_{false};  // with notices_: a submission does not wake the sleeping thread
  std::atomic<uint64_t> notices_{0};
  uint64_t notices_seen_ = 0;  // of the running thread
  uint64_t end_count_seen_ = 0;
  Nanos idle_since_ = 0;  // 0: the last turn did work
  Nanos spin_ = 20 * kMicrosecond;
  StallMeter stall_meter_;

  std::mutex mutex_;  // guards snapshot_ and the waits on changed_
  std::condition_variable changed_;
  std::atomic<uint64_t> snapshots_requested_{0};
  std::atomic<uint64_t> snapshots_taken_{0};
  ChunkScheduler::Counters snapshot_;
  std::atomic<uint64_t> operations_done_{0};
};

template <typename Predicate>
bool ProgressThread::wait(Predicate done, Nanos deadline) noexcept {
  for (;;) {
    if (done()) return true;
    if (deadline != kNoDeadline && monotonic_now() >= deadline) return done();
    if (try_acquire_loop()) {
      run(done, deadline);
      release_loop();
    } else {
      wait_for_signal(done, deadline);
    }
  }
}

template <typename Predicate>
void ProgressThread::run(Predicate done, Nanos deadline) noexcept {
  idle_since_ = 0;
  Nanos now = monotonic_now();
  extend_stall(now);
  while (!done() && now < deadline) {
    unsigned work = 0;
    run_turn(now, work);
    if (work == 0 && !done()) {
      sleep(now, deadline);
      now = monotonic_now();
      extend_stall(now);
    } else {
      now = monotonic_now();
    }
  }
}

template <typename Predicate>
void ProgressThread::wait_for_signal(Predicate done, Nanos deadline) noexcept {
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  {
    std::unique_lock lock(mutex_);
    const auto look = [&] { return done() || !running_.load(std::memory_order_seq_cst); };
    if (deadline == kNoDeadline) {
      changed_.wait(lock, look);
    } else {
      changed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline)),
                          look);
    }
  }
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace sluice::engine
