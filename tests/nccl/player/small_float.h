// Conversions of 8 and 16 bit floats: exact to float, rounded to nearest even from float.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace player {

struct FloatFormat {
  int exponent_bits, mantissa_bits;
  uint32_t largest;    // code of the largest finite value
  uint32_t quiet_nan;  // the code of a NaN result
  bool has_infinity;
  bool saturates;  // larger and infinite results become the largest finite value

  [[nodiscard]] constexpr int lowest_exponent() const { return 2 - (1 << (exponent_bits - 1)); }
  [[nodiscard]] constexpr uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
};

inline constexpr FloatFormat kF16{5, 10, 0x7bff, 0x7e00, true, false};
inline constexpr FloatFormat kBf16{8, 7, 0x7f7f, 0x7fc0, true, false};
inline constexpr FloatFormat kF8e4m3{4, 3, 0x7e, 0x7f, false, true};
inline constexpr FloatFormat kF8e5m2{5, 2, 0x7b, 0x7e, true, true};

inline float widen(const FloatFormat& format, uint32_t code) {
  const uint32_t magnitude = code & (format.sign() - 1);
  float value = 0;
  if (magnitude > format.largest) {
    value = format.has_infinity && magnitude == format.largest + 1 ? std::numeric_limits<float>::infinity()
                                                                   : std::numeric_limits<float>::quiet_NaN();
  } else {
    const int biased = static_cast<int>(magnitude >> format.mantissa_bits);
    const uint32_t fraction = magnitude & ((1u << format.mantissa_bits) - 1);
    const uint32_t whole = biased == 0 ? fraction : fraction + (1u << format.mantissa_bits);
    const int exponent = (biased == 0 ? 0 : biased - 1) + format.lowest_exponent() - format.mantissa_bits;
    value = std::ldexp(static_cast<float>(whole), exponent);
  }
  return (code & format.sign()) != 0 ? -value : value;
}

inline uint32_t narrow(const FloatFormat& format, float value) {
  if (std::isnan(value)) return format.quiet_nan;
  const uint32_t sign = std::signbit(value) ? format.sign() : 0;
  const uint32_t beyond = format.saturates ? format.largest : format.largest + 1;
  if (std::isinf(value)) return sign | beyond;
  if (value == 0) return sign;
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = std::max(std::ilogb(magnitude), format.lowest_exponent());
  const double steps = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const double code =
      std::ldexp(static_cast<double>(exponent - format.lowest_exponent()), format.mantissa_bits) + steps;
  return sign | (code > format.largest ? beyond : static_cast<uint32_t>(code));
}

}  // namespace player
