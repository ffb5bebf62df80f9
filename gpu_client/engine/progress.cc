#include "gpu_client/engine/progress.h"

#include <algorithm>
#include <utility>

#include "gpu_client/engine/thread.h"

namespace sluice::engine {
namespace {

// How long an idle driver polls before it sleeps: doubled when a sleep turns out shorter than this, halved
// when it was longer. A sleep and a wake-up cost about 10 us, so beyond a few times that polling only burns a
// core that others may need.
constexpr Nanos kSpinMin = 2 * kMicrosecond;
constexpr Nanos kSpinMax = 50 * kMicrosecond;
// The transport's own deadlines are looked at in its polls.
constexpr Nanos kLongestSleep = kSecond;

void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Result<void> Progress::start() {
  if (!take_wheel()) return fail(Errc::kInternal, "the session is driven already");
  auto thread = start_thread("sluice-progress", [this] {
    run([this] { return stopping_.load(std::memory_order_acquire); }, kNoDeadline);
    leave_wheel();
  });
  if (!thread) {
    leave_wheel();
    return tl::unexpected(thread.error());
  }
  thread_ = std::move(*thread);
  return {};
}

void Progress::stop() noexcept {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  notify();
  thread_.join();
}

void Progress::notify() noexcept {
  notices_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst)) context_.wake();
}

void Progress::signal() noexcept {
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  // Taking the lock orders this after a waiter that has looked and is about to block.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void Progress::leave_wheel() noexcept {
  driving_.store(false, std::memory_order_seq_cst);
  signal();
}

void Progress::drive() noexcept {
  if (!take_wheel()) return;
  unsigned work = 0;
  one_turn(monotonic_now(), work);
  leave_wheel();
}

void Progress::one_turn(Nanos now, unsigned& work) noexcept {
  notices_seen_ = notices_.load(std::memory_order_seq_cst);
  work = driver_.turn(now);
  if (driver_.endings() != endings_seen_) {
    endings_seen_ = driver_.endings();
    operations_done_.store(exchange_.operations_done(), std::memory_order_relaxed);
    signal();
  }
  if (const uint64_t wanted = snapshots_wanted_.load(std::memory_order_acquire);
      wanted != snapshots_taken_.load(std::memory_order_relaxed)) {
    {
      const std::lock_guard lock(mutex_);
      snapshot_ = {.lanes = exchange_.counters(),
                   .bytes_resent = exchange_.bytes_resent(),
                   .results_copied = exchange_.result_bytes_copied(),
                   .rdma_links = exchange_.rdma_links(),
                   .open_links = exchange_.open_links()};
    }
    snapshots_taken_.store(wanted, std::memory_order_seq_cst);
    signal();
  }
  if (work > 0) idle_since_ = 0;
}

void Progress::sleep(Nanos now, Nanos deadline) noexcept {
  if (idle_since_ == 0) idle_since_ = now;
  if (now - idle_since_ < spin_) return pause_cpu();
  Nanos until = std::min(deadline, now + kLongestSleep);
  if (const Nanos due = driver_.next_deadline(); due != 0) until = std::min(until, due);
  sleeping_.store(true, std::memory_order_seq_cst);
  const Nanos before = monotonic_now();
  if (notices_.load(std::memory_order_seq_cst) == notices_seen_ && until > before)
    context_.wait(until - before);
  sleeping_.store(false, std::memory_order_relaxed);
  const bool short_sleep = monotonic_now() - before < kSpinMax;
  spin_ = std::clamp(short_sleep ? 2 * spin_ : spin_ / 2, kSpinMin, kSpinMax);
  idle_since_ = 0;
}

Progress::Counters Progress::counters() noexcept {
  const uint64_t mine = snapshots_wanted_.fetch_add(1, std::memory_order_acq_rel) + 1;
  notify();
  static_cast<void>(wait([&] { return snapshots_taken_.load(std::memory_order_seq_cst) >= mine; },
                         monotonic_now() + kSecond));
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

}  // namespace sluice::engine
