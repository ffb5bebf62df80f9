// Functions for CPU time: user and system time in seconds.
#pragma once

#include <sys/resource.h>

namespace sluice::bench {

[[nodiscard]] inline double cpu_seconds_of(const rusage& usage) noexcept {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Returns the CPU time of this process so far, including the threads of libraries.
[[nodiscard]] inline double own_cpu_seconds() noexcept {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return cpu_seconds_of(usage);
}

}  // namespace sluice::bench
