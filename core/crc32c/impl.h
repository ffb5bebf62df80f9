// The implementations of core/crc32c.h and their shared polynomial arithmetic. All values use the reflected
// representation of CRC-32C: bit 31 of a 32-bit value is the coefficient of x^0, and bit 0 is the coefficient
// of x^31.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SLUICE_CRC32C_X86 1
#else
#define SLUICE_CRC32C_X86 0
#endif
#if defined(__aarch64__) && defined(__linux__) && (defined(__GNUC__) || defined(__clang__))
#define SLUICE_CRC32C_ARM 1
#else
#define SLUICE_CRC32C_ARM 0
#endif

namespace sluice::crc32c_impl {

inline constexpr uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41 reflected, without x^32

// a(x) * x mod P.
[[nodiscard]] constexpr uint32_t times_x(uint32_t a) noexcept {
  return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0);
}

// a(x) * b(x) mod P.
[[nodiscard]] constexpr uint32_t times(uint32_t a, uint32_t b) noexcept {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((b & bit) != 0) product ^= a;
    a = times_x(a);
  }
  return product;
}

// x^n mod P.
[[nodiscard]] constexpr uint32_t x_to_the(uint64_t n) noexcept {
  uint32_t result = 0x80000000;  // x^0
  uint32_t square = 0x40000000;  // x^1, then x^2, x^4, ...
  for (; n != 0; n >>= 1) {
    if ((n & 1) != 0) result = times(result, square);
    square = times(square, square);
  }
  return result;
}

// All functions follow the contract of crc32c(): final CRC values in and out, any size, any alignment. Call a
// function for special instructions only if its has_...() returns true.
[[nodiscard]] uint32_t table(const std::byte* data, size_t size, uint32_t crc) noexcept;
#if SLUICE_CRC32C_X86
[[nodiscard]] bool has_sse42() noexcept;
[[nodiscard]] uint32_t sse42(const std::byte* data, size_t size, uint32_t crc) noexcept;
[[nodiscard]] bool has_vpclmul() noexcept;
[[nodiscard]] uint32_t vpclmul(const std::byte* data, size_t size, uint32_t crc) noexcept;
#endif
#if SLUICE_CRC32C_ARM
[[nodiscard]] bool has_armv8_crc() noexcept;
[[nodiscard]] uint32_t armv8_crc(const std::byte* data, size_t size, uint32_t crc) noexcept;
#endif

}  // namespace sluice::crc32c_impl
