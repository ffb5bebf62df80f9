#include "reducer/lane/lane_thread.h"

#include <sched.h>

#include <algorithm>

#include "core/clock.h"

namespace sluice::reducer {
namespace {

// A sleep shorter than this would have been better spent polling.
constexpr Nanos kShortSleep = 50 * kMicrosecond;
constexpr Nanos kLeastSpin = kMicrosecond;

}  // namespace

LaneThread::LaneThread(std::unique_ptr<Lane> lane, IdleStrategy idle, Nanos spin)
    : lane_(std::move(lane)), idle_(idle), spin_(spin) {}

LaneThread::~LaneThread() {
  stop();
}

void LaneThread::start() {
  thread_ = std::thread([this] { run(); });
}

void LaneThread::stop() noexcept {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_relaxed);  // needs no order with wake(): the next turn reads it
  lane_->context().wake();
  thread_.join();
}

void LaneThread::run() noexcept {
  Nanos busy_at = monotonic_now();
  Nanos spin = spin_;
  while (!stop_.load(std::memory_order_relaxed)) {
    const Nanos now = monotonic_now();
    if (lane_->do_work(now) != 0) {
      busy_at = now;
      continue;
    }
    switch (idle_) {
      case IdleStrategy::kSpin: break;
      case IdleStrategy::kYield: sched_yield(); break;
      case IdleStrategy::kEpoll:
        if (now - busy_at < spin) break;
        lane_->context().wait(lane_->idle_limit());
        // On a slow link frames are further apart than any spin, which would only take CPU time.
        const bool was_short = monotonic_now() - now < kShortSleep;
        spin = std::min(spin_, was_short ? 2 * std::max(spin, kLeastSpin) : spin / 2);
        break;
    }
  }
}

}  // namespace sluice::reducer
