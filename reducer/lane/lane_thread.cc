#include "reducer/lane/lane_thread.h"

#include <sched.h>

#include "core/clock.h"

namespace sluice::reducer {

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
        if (now - busy_at >= spin_) lane_->context().wait(lane_->idle_limit());
        break;
    }
  }
}

}  // namespace sluice::reducer
