// Processor time as the benchmarks count it: user and system, in seconds.
#pragma once

#include <sys/resource.h>

namespace sluice::bench {

[[nodiscard]] inline double cpu_seconds_of(const rusage& usage) noexcept {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Of this process so far, with all its threads: libraries have some of their own.
[[nodiscard]] inline double own_cpu_seconds() noexcept {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return cpu_seconds_of(usage);
}

}  // namespace sluice::bench
