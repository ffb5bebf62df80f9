// How f32 travels as bf16 or f16: the arithmetic of it, for hosts and GPUs alike, so that both have the same
// bits. Compiled by nvcc too.
//
// f16 with a scale for each block of kScaleBlock elements of a round (an operation, or several put together).
// E, the largest exponent field of the finite f32 in a block over all ranks (a u8 max allreduce), bounds them
// by 2^(E - 126). They are multiplied by 2^s, s = shift_of(E, scale_top(n)), so that a sum of n is at most
// 2^15 < 65504, the largest f16; the result is multiplied by 2^-s. Infinities and NaN have no part in E, and
// stay what they are.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice::pipeline {

constexpr uint32_t kScaleBlock = 16384;

enum class WireCast : uint8_t {
  kNone,      // bytes as they are
  kBf16,      // f32 as bf16
  kScaledF16  // f32 as f16 with a scale for each block
};

// Over the elements that were finite, and are after the cast.
struct CastError {
  double error_squares = 0;
  double value_squares = 0;
};

// Of the elements of one piece.
struct Cast {
  WireCast wire = WireCast::kNone;
  uint32_t element_bytes = 4;          // of the buffers
  const uint8_t* exponents = nullptr;  // kScaledF16: E of each block of the round, in pinned memory
  uint64_t first = 0;                  // the piece's first element in the round
  int32_t top = 0;                     // scale_top()
  bool measure = false;                // add up the CastError of what is gathered

  [[nodiscard]] constexpr uint32_t wire_bytes() const noexcept {
    return wire == WireCast::kNone ? element_bytes : 2;
  }
};

// `terms`: n of a sum; 1 of an average, which is divided before it is rounded.
constexpr int32_t scale_top(uint32_t terms) noexcept {
  int32_t bits = 0;  // ceil(log2(terms))
  while ((uint64_t{1} << bits) < terms) ++bits;
  return 15 + 126 - bits;
}

SLUICE_HOST_DEVICE inline uint32_t bits_of(float x) noexcept {
  return __builtin_bit_cast(uint32_t, x);
}
SLUICE_HOST_DEVICE inline float float_of(uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}

// The exponent field; 0 for what is not finite, and for subnormals.
SLUICE_HOST_DEVICE inline uint8_t exponent_of(float x) noexcept {
  const uint32_t e = (bits_of(x) >> 23) & 0xff;
  return e == 0xff ? 0 : static_cast<uint8_t>(e);
}

// s: at most 126, so that 2^s and 2^-s are both normal. E is at most 254, and top at least 130.
SLUICE_HOST_DEVICE inline int32_t shift_of(uint8_t exponent, int32_t top) noexcept {
  const int32_t shift = top - (exponent > 1 ? exponent : 1);
  return shift < 126 ? shift : 126;
}

// 2^s for s in -126..127.
SLUICE_HOST_DEVICE inline float power_of_two(int32_t s) noexcept {
  return float_of(static_cast<uint32_t>(s + 127) << 23);
}

// To nearest, ties to even; a NaN becomes a quiet one.
SLUICE_HOST_DEVICE inline uint16_t to_bf16(float x) noexcept {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((nan ? bits | 0x00400000 : rounded) >> 16);
}
SLUICE_HOST_DEVICE inline float from_bf16(uint16_t x) noexcept {
  return float_of(uint32_t{x} << 16);
}

// To nearest, ties to even; beyond the largest f16 infinity; a NaN becomes 0x7e00 with its sign.
SLUICE_HOST_DEVICE inline uint16_t to_f16(float x) noexcept {
  const uint32_t bits = bits_of(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  // Normal f16: 13 bits of the significand are rounded off, the exponent counts from another bias.
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  // Subnormal f16: the last place of 0.5f is that of the smallest f16, so the adder rounds there.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;
  uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000));
}
// Exact.
SLUICE_HOST_DEVICE inline float from_f16(uint16_t x) noexcept {
  const uint32_t magnitude = uint32_t{x} & 0x7fff;
  const uint32_t normal = (magnitude << 13) + 0x38000000;
  const uint32_t special = normal + 0x38000000;
  // 2^-14 with the significand of the subnormal behind it, less the 2^-14.
  const uint32_t subnormal = bits_of(float_of((magnitude << 13) + 0x38800000) - float_of(0x38800000));
  uint32_t bits = magnitude < 0x0400 ? subnormal : normal;
  bits = magnitude >= 0x7c00 ? special : bits;
  return float_of(bits | (uint32_t{x} & 0x8000) << 16);
}

}  // namespace sluice::pipeline
