// Who drives a session, and how everybody else waits. Exactly one thread at a time drives: an own thread for
// the life of the session, or else whoever is in wait() or drive(). The others block on a condition variable
// that the driver signals only when somebody waits there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "core/result.h"
#include "gpu_client/engine/driver.h"
#include "transport/transport.h"

namespace sluice::engine {

inline constexpr Nanos kNoDeadline = INT64_MAX;

class Progress {
 public:
  Progress(Driver& driver, Exchange& exchange, transport::Context& context)
      : driver_(driver), exchange_(exchange), context_(context) {}
  ~Progress() { stop(); }
  Progress(const Progress&) = delete;

  // Starts the own thread. Without it, callers drive.
  [[nodiscard]] Result<void> start();
  // Ends and joins the own thread; from then on callers drive. Not from that thread.
  void stop() noexcept;

  // Something changed that a turn should see: a submission, a sealed fate. Any thread; a system call only if
  // the driver sleeps.
  void notify() noexcept;
  // Something changed that a predicate of wait() looks at. Any thread.
  void signal() noexcept;

  // One turn, unless another thread drives.
  void drive() noexcept;

  // Blocks until done() or until `deadline` on the monotonic clock; returns done(). `done` is called often,
  // from the calling thread, and reads atomics only.
  template <typename Predicate>
  bool wait(Predicate done, Nanos deadline) noexcept;

  // Of the links, as of now.
  struct Counters {
    transport::EndpointCounters lanes;
    uint64_t bytes_resent = 0;
    uint64_t results_copied = 0;
    uint32_t rdma_links = 0;
    uint32_t open_links = 0;
  };
  [[nodiscard]] Counters counters() noexcept;
  [[nodiscard]] uint64_t operations_done() const noexcept {
    return operations_done_.load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] bool take_wheel() noexcept { return !driving_.exchange(true, std::memory_order_seq_cst); }
  void leave_wheel() noexcept;
  template <typename Predicate>
  void run(Predicate done, Nanos deadline) noexcept;
  void one_turn(Nanos now, unsigned& work) noexcept;
  void sleep(Nanos now, Nanos deadline) noexcept;
  // Blocks until signalled or nobody drives.
  template <typename Predicate>
  void wait_for_driver(Predicate done, Nanos deadline) noexcept;

  Driver& driver_;
  Exchange& exchange_;
  transport::Context& context_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  // Each pair below is a flag stored by one side before it looks at what the other side stores before it
  // looks at the flag. All four accesses are sequentially consistent, so at least one side sees the other.
  std::atomic<bool> driving_{false};   // ... with waiters_: a thread that waits while nobody drives
  std::atomic<uint32_t> waiters_{0};   // ... with Operation::state: an end that no waiter hears of
  std::atomic<bool> sleeping_{false};  // ... with notices_: a submission that finds the driver asleep
  std::atomic<uint64_t> notices_{0};
  uint64_t notices_seen_ = 0;  // the driver's
  uint64_t endings_seen_ = 0;
  Nanos idle_since_ = 0;  // 0: the last turn did something
  Nanos spin_ = 20 * kMicrosecond;

  std::mutex mutex_;  // for the condition variable and the snapshot
  std::condition_variable changed_;
  std::atomic<uint64_t> snapshots_wanted_{0};
  std::atomic<uint64_t> snapshots_taken_{0};
  Counters snapshot_;
  std::atomic<uint64_t> operations_done_{0};
};

template <typename Predicate>
bool Progress::wait(Predicate done, Nanos deadline) noexcept {
  for (;;) {
    if (done()) return true;
    if (deadline != kNoDeadline && monotonic_now() >= deadline) return done();
    if (take_wheel()) {
      run(done, deadline);
      leave_wheel();
    } else {
      wait_for_driver(done, deadline);
    }
  }
}

template <typename Predicate>
void Progress::run(Predicate done, Nanos deadline) noexcept {
  idle_since_ = 0;
  while (!done()) {
    const Nanos now = monotonic_now();
    if (now >= deadline) return;
    unsigned work = 0;
    one_turn(now, work);
    if (work == 0 && !done()) sleep(now, deadline);
  }
}

template <typename Predicate>
void Progress::wait_for_driver(Predicate done, Nanos deadline) noexcept {
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  {
    std::unique_lock lock(mutex_);
    const auto look = [&] { return done() || !driving_.load(std::memory_order_seq_cst); };
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
