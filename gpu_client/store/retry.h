// Class RetryPause waits between the attempts of a call, longer after each, until the call's deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "core/clock.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::store_client {

class RetryPause {
 public:
  explicit RetryPause(Nanos deadline) noexcept : deadline_(deadline) {}

  // False, without a pause, if it would end after the deadline.
  [[nodiscard]] bool wait() {
    if (monotonic_now() + pause_ >= deadline_) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_));
    pause_ = std::min(2 * pause_, kLongest);
    return true;
  }
  // The error of a call whose last attempt ended with `last`.
  [[nodiscard]] static tl::unexpected<Error> timed_out(const Error& last) {
    return fail(Errc::kTimeout, "timed out: " + last.text);
  }

 private:
  static constexpr Nanos kLongest = 200 * kMillisecond;
  const Nanos deadline_;
  Nanos pause_ = 20 * kMillisecond;
};

}  // namespace sluice::store_client
