#include "gpu_client/engine/data_path/progress_thread.h"

#include <algorithm>
#include <utility>

#include "gpu_client/engine/base/thread.h"

namespace sluice::engine {
namespace {

// Bounds of the time that an idle thread polls before it sleeps. The time doubles after a sleep shorter
// than kSpinMax and halves after a longer one. A sleep with its wake-up costs about 10 us, so polling for
// more than a few times that only takes CPU time from other threads.
constexpr Nanos kSpinMin = 2 * kMicrosecond;
constexpr Nanos kSpinMax = 50 * kMicrosecond;
// The transport checks its own deadlines when it is polled, so the sleep must be bounded.
constexpr Nanos kLongestSleep = kSecond;

void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Result<void> ProgressThread::start() {
  if (!try_acquire_loop())
    return fail(Errc::kInternal, "the progress loop of the session is already running");
  auto thread = start_thread("sluice-progress", [this] {
    run([this] { return stopping_.load(std::memory_order_acquire); }, kNoDeadline);
    release_loop();
  });
  if (!thread) {
    release_loop();
    return tl::unexpected(thread.error());
  }
  thread_ = std::move(*thread);
  return {};
}

void ProgressThread::stop() noexcept {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  notify();
  thread_.join();
}

void ProgressThread::notify() noexcept {
  notices_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst)) context_.wake();
}

void ProgressThread::signal() noexcept {
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  // With the lock, the notification comes after a waiter that has evaluated its predicate has blocked.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void ProgressThread::release_loop() noexcept {
  running_.store(false, std::memory_order_seq_cst);
  signal();
}

void ProgressThread::progress_once() noexcept {
  if (!try_acquire_loop()) return;
  const Nanos now = monotonic_now();
  extend_stall(now);
  unsigned work = 0;
  run_turn(now, work);
  release_loop();
}

void ProgressThread::run_turn(Nanos now, unsigned& work) noexcept {
  notices_seen_ = notices_.load(std::memory_order_seq_cst);
  work = progress_loop_.turn(now);
  if (progress_loop_.end_count() != end_count_seen_) {
    end_count_seen_ = progress_loop_.end_count();
    operations_done_.store(scheduler_.operations_done(), std::memory_order_relaxed);
    signal();
  }
  if (const uint64_t requested = snapshots_requested_.load(std::memory_order_acquire);
      requested != snapshots_taken_.load(std::memory_order_relaxed)) {
    {
      const std::lock_guard lock(mutex_);
      snapshot_ = scheduler_.counters();
    }
    snapshots_taken_.store(requested, std::memory_order_seq_cst);
    signal();
  }
  if (work > 0)
    idle_since_ = 0;
  else
    stall_meter_.note(scheduler_.first_unfinished(), has_open_operation(), now);
}

void ProgressThread::sleep(Nanos now, Nanos deadline) noexcept {
  if (idle_since_ == 0) idle_since_ = now;
  if (now - idle_since_ < spin_) return pause_cpu();
  Nanos until = std::min(deadline, now + kLongestSleep);
  if (const Nanos due = progress_loop_.next_deadline(); due != 0) until = std::min(until, due);
  sleeping_.store(true, std::memory_order_seq_cst);
  const Nanos before = monotonic_now();
  if (notices_.load(std::memory_order_seq_cst) == notices_seen_ && until > before)
    context_.wait(until - before);
  sleeping_.store(false, std::memory_order_relaxed);
  const bool short_sleep = monotonic_now() - before < kSpinMax;
  spin_ = std::clamp(short_sleep ? 2 * spin_ : spin_ / 2, kSpinMin, kSpinMax);
  idle_since_ = 0;
}

ChunkScheduler::Counters ProgressThread::counters() noexcept {
  const uint64_t request = snapshots_requested_.fetch_add(1, std::memory_order_acq_rel) + 1;
  notify();
  static_cast<void>(wait([&] { return snapshots_taken_.load(std::memory_order_seq_cst) >= request; },
                         monotonic_now() + kSecond));
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

}  // namespace sluice::engine
