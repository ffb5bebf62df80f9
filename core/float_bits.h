// Bit patterns of f32, for hosts and GPUs.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice {

SLUICE_HOST_DEVICE constexpr uint32_t bits_of(float x) noexcept {
  return __builtin_bit_cast(uint32_t, x);
}
SLUICE_HOST_DEVICE constexpr float float_of(uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}
SLUICE_HOST_DEVICE constexpr bool is_finite(float x) noexcept {
  return (bits_of(x) & 0x7f800000) != 0x7f800000;
}

// Returns `yes` if `a` is less than `b`, else `no`. Without a branch, which compilers do not turn into vector
// code when a float operation is behind it. All are below 2^31.
SLUICE_HOST_DEVICE constexpr uint32_t select_below(uint32_t a, uint32_t b, uint32_t yes,
                                                   uint32_t no) noexcept {
  const uint32_t mask = 0U - static_cast<uint32_t>(static_cast<int32_t>(a) < static_cast<int32_t>(b));
  return (yes & mask) | (no & ~mask);
}

// Returns 2^s for s in -126..127.
SLUICE_HOST_DEVICE constexpr float power_of_two(int32_t s) noexcept {
  return float_of(static_cast<uint32_t>(s + 127) << 23);
}

}  // namespace sluice
