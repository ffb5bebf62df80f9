// Conversions between f32 and the types in which it travels, for hosts and GPUs. Both compile these functions
// (GPUs with nvcc), so both produce the same bits. wire/payload/block_format.h has those of the block types.
//
// f16 needs a scale, one for each block of kScaleBlock elements of a batch (docs/design/adr/0013). Let E be
// the largest exponent field of the finite f32 in a block over all ranks, found by a u8 max allreduce. All
// these values are below 2^(E - 126). They are multiplied by 2^s with s = scale_shift(E,
// scaled_exponent_limit(n)), so that a sum of n values is at most 2^15; the largest f16 is 65504. The result
// is multiplied by 2^-s. Infinities and NaN do not contribute to E and stay unchanged.
#pragma once

#include <cstdint>

#include "core/float_bits.h"
#include "wire/payload/block_format.h"

namespace sluice::pipeline {

constexpr uint32_t kScaleBlock = 16384;

enum class WireCast : uint8_t {
  kNone,       // elements unchanged
  kBf16,       // f32 travels as bf16
  kScaledF16,  // f32 travels as f16 with a scale for each block of kScaleBlock elements
  kMxfp8,      // f32 travels in blocks of wire::kBlockValues
  kInt8Block   // the same
};

SLUICE_HOST_DEVICE constexpr bool is_block(WireCast cast) noexcept {
  return cast == WireCast::kMxfp8 || cast == WireCast::kInt8Block;
}

// Operations that are merged into one batch of a block type. The ranges of one kernel launch are passed by
// value, and a block must not be divided between launches.
constexpr uint32_t kMaxBlockRanges = 120;

// What travels as a unit: `bytes` on the wire for `elements` of the caller.
struct WireUnit {
  uint32_t elements;
  uint32_t bytes;

  [[nodiscard]] constexpr uint64_t count(uint64_t elements_of_caller) const noexcept {
    return (elements_of_caller + elements - 1) / elements;
  }
};

// Sums over the elements that are finite before and after the conversion: the squares of the rounding errors
// and of the values.
struct CastError {
  double error_squares = 0;
  double value_squares = 0;
};

// Describes the conversion of the elements of one segment.
struct Cast {
  WireCast wire = WireCast::kNone;
  uint32_t element_bytes = 4;          // size of an element in the caller's buffers
  const uint8_t* exponents = nullptr;  // kScaledF16: E of each block of the batch, in pinned memory
  uint64_t first = 0;                  // index in the batch of the segment's first element
  int32_t exponent_limit = 0;          // kScaledF16: scaled_exponent_limit()
  bool measure = false;                // gather() adds the rounding errors to the CastError
  bool stochastic = false;             // block types: gather() rounds stochastically
  uint64_t seed = 0;                   // of the random bits; the index is that of the element in the batch

  [[nodiscard]] constexpr WireUnit unit() const noexcept {
    if (is_block(wire))
      return {static_cast<uint32_t>(wire::kBlockValues), static_cast<uint32_t>(wire::kBlockBytes)};
    return {1, wire == WireCast::kNone ? element_bytes : 2};
  }
};

// Returns the largest exponent field, on the scale of E, that a value may have so that a sum of `terms`
// values stays at most 2^15. `terms` is 1 for an average where the reducer divides before it rounds.
constexpr int32_t scaled_exponent_limit(uint32_t terms) noexcept {
  int32_t log2_terms = 0;  // rounded up
  while ((uint64_t{1} << log2_terms) < terms) ++log2_terms;
  return 15 + 126 - log2_terms;
}

// Returns the exponent field. It is 0 for infinities, NaN and subnormals.
SLUICE_HOST_DEVICE inline uint8_t exponent_of(float x) noexcept {
  const uint32_t e = (bits_of(x) >> 23) & 0xff;
  return e == 0xff ? 0 : static_cast<uint8_t>(e);
}

// Returns s, at most 126, so that 2^s and 2^-s are both normal f32. s is at least -124: `exponent` is at most
// 254 and the limit at least 130.
SLUICE_HOST_DEVICE inline int32_t scale_shift(uint8_t exponent, int32_t exponent_limit) noexcept {
  const int32_t shift = exponent_limit - (exponent > 1 ? exponent : 1);
  return shift < 126 ? shift : 126;
}

// Rounds to nearest, ties to even. A NaN becomes quiet.
SLUICE_HOST_DEVICE inline uint16_t to_bf16(float x) noexcept {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((nan ? bits | 0x00400000 : rounded) >> 16);
}
SLUICE_HOST_DEVICE inline float from_bf16(uint16_t x) noexcept {
  return float_of(uint32_t{x} << 16);
}

// Rounds to nearest, ties to even. Values that round beyond the largest f16 become infinite. A NaN becomes
// 0x7e00 with its sign.
SLUICE_HOST_DEVICE inline uint16_t to_f16(float x) noexcept {
  const uint32_t bits = bits_of(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  // Normal f16: rounds off 13 bits of the significand and changes the bias of the exponent.
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  // Subnormal f16: the last bit of 0.5f has the value of the smallest f16, so the addition rounds to it.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;
  uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000));
}
// Converts without rounding.
SLUICE_HOST_DEVICE inline float from_f16(uint16_t x) noexcept {
  const uint32_t magnitude = uint32_t{x} & 0x7fff;
  const uint32_t normal = (magnitude << 13) + 0x38000000;
  const uint32_t special = normal + 0x38000000;
  // 2^-14 plus the subnormal's value, minus 2^-14.
  const uint32_t subnormal = bits_of(float_of((magnitude << 13) + 0x38800000) - float_of(0x38800000));
  uint32_t bits = magnitude < 0x0400 ? subnormal : normal;
  bits = magnitude >= 0x7c00 ? special : bits;
  return float_of(bits | (uint32_t{x} & 0x8000) << 16);
}

}  // namespace sluice::pipeline
