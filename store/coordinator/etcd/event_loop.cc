#include "store/coordinator/etcd/event_loop.h"

#include <chrono>

namespace sluice::store::etcd {

bool EventLoop::run_until(const bool& done, Nanos deadline) {
  // steady_clock is CLOCK_MONOTONIC.
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline)};
  io_.restart();
  while (!done) {
    if (io_.run_one_until(until) == 0) break;
  }
  return done;
}

void EventLoop::run_ready() {
  io_.restart();
  io_.poll();
}

}  // namespace sluice::store::etcd
