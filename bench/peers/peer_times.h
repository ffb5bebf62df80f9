// Functions for times on the monotonic clock.
#pragma once

#include <cerrno>
#include <ctime>

#include "core/clock.h"

namespace sluice::bench {

inline void sleep_until(Nanos when) {
  const timespec t{.tv_sec = when / kSecond, .tv_nsec = when % kSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

[[nodiscard]] inline double seconds_since(Nanos begin) {
  return 1e-9 * static_cast<double>(monotonic_now() - begin);
}

}  // namespace sluice::bench
