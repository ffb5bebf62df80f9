// Units: all times are nanoseconds of the monotonic clock, all sizes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

using Nanos = int64_t;  // a duration or a point on CLOCK_MONOTONIC

inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;
inline constexpr size_t kGiB = 1024 * kMiB;

inline constexpr size_t kCacheLine = 64;

[[nodiscard]] constexpr uint64_t div_ceil(uint64_t a, uint64_t b) noexcept {
  return (a + b - 1) / b;
}
[[nodiscard]] constexpr uint64_t round_up(uint64_t a, uint64_t multiple) noexcept {
  return div_ceil(a, multiple) * multiple;
}

}  // namespace sluice
