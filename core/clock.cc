#include "core/clock.h"

#include <ctime>

namespace sluice {

namespace {

Nanos now_of(clockid_t clock) noexcept {
  timespec ts{};
  clock_gettime(clock, &ts);
  return static_cast<Nanos>(ts.tv_sec) * kSecond + ts.tv_nsec;
}

}  // namespace

Nanos monotonic_now() noexcept {
  return now_of(CLOCK_MONOTONIC);
}

Nanos thread_cpu_now() noexcept {
  return now_of(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace sluice
