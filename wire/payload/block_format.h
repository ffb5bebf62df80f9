// The arithmetic of the block types mxfp8 and int8-block: f32 to codes and back, for one value or one group
// (protocol.md section 6, "Blocks"). Hosts and GPUs compile the same functions, and the reducer's vector code
// must equal them, so the bits are the same everywhere.
//
// A block has 256 values in 264 bytes: 8 bytes of scales, then one byte for each value. A scale belongs to a
// group of consecutive values: 32 in mxfp8 (one E8M0 byte for each group), 128 in int8-block (one f32).
//
// Code times scale is exact in f32 in both types, unless it overflows. Only then may a fused multiply-add,
// which can stay finite, return other bits than a multiplication followed by an addition.
//
// The overloads of encode() with random bits round stochastically: the probability of the upper neighbor is
// the distance to the lower one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/float_bits.h"

namespace sluice::wire {

inline constexpr size_t kBlockValues = 256;
inline constexpr size_t kBlockScaleBytes = 8;
inline constexpr size_t kBlockBytes = kBlockScaleBytes + kBlockValues;

// Random bits for value `index` of an operation: a counter-based generator, so the bits depend on the two
// numbers alone (the finalizer of MurmurHash3 over their combination).
SLUICE_HOST_DEVICE constexpr uint32_t random_bits(uint64_t seed, uint64_t index) noexcept {
  uint64_t x = seed ^ (index * 0x9e3779b97f4a7c15ULL);
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return static_cast<uint32_t>(x >> 32);
}

struct Mxfp8 {
  static constexpr size_t kGroup = 32;
  static constexpr uint8_t kNan = 0x7f;       // E4M3
  static constexpr uint8_t kScaleNan = 0xff;  // E8M0
  static constexpr float kLargest = 448;      // E4M3

  // The E8M0 code of the smallest power of two X for which largest / X is at most 448; `largest` is the
  // largest finite magnitude of the group. 0 to 247.
  SLUICE_HOST_DEVICE static constexpr uint8_t scale_code(float largest) noexcept {
    const uint32_t exponent = (bits_of(largest) + 0x1fffff) >> 23;  // carries if the significand is over 1.75
    return static_cast<uint8_t>(exponent > 8 ? exponent - 8 : 0);
  }
  // 1 / X, exact and normal. `code` is at most 247.
  SLUICE_HOST_DEVICE static constexpr float inverse(uint8_t code) noexcept {
    return float_of(static_cast<uint32_t>(254 - code) << 23);
  }
  // X. NaN for kScaleNan.
  SLUICE_HOST_DEVICE static constexpr float scale(uint8_t code) noexcept {
    if (code == kScaleNan) return float_of(0x7fc00000);
    return code == 0 ? float_of(0x00400000) : float_of(uint32_t{code} << 23);
  }

  // Rounds x = value / X, whose magnitude is at most 448, to nearest, ties to even. NaN and infinity become
  // kNan. Without branches, so that compilers can use vectors.
  SLUICE_HOST_DEVICE static constexpr uint32_t encode_wide(float x) noexcept {
    const uint32_t bits = bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude + 0x7ffff + ((magnitude >> 20) & 1) - 0x3c000000) >> 20;
    // The last bit of 2^14 has the value of the smallest E4M3, 2^-9, so the addition rounds to it.
    const uint32_t subnormal = bits_of(float_of(magnitude) + 16384.0F) - 0x46800000;
    const uint32_t code = select_below(magnitude, 0x3c800000, subnormal, normal) | ((bits >> 24) & 0x80);
    return select_below(magnitude, 0x7f800000, code, kNan);
  }
  SLUICE_HOST_DEVICE static constexpr uint8_t encode(float x) noexcept {
    return static_cast<uint8_t>(encode_wide(x));
  }
  // The same with stochastic rounding.
  SLUICE_HOST_DEVICE static constexpr uint8_t encode(float x, uint32_t random) noexcept {
    const uint32_t bits = bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude + (random >> 12) - 0x3c000000) >> 20;
    // In units of 2^-9 plus a fraction of 23 bits: exact below 8 units.
    const float units = float_of(magnitude) * 512.0F;
    const auto whole = static_cast<uint32_t>(magnitude < 0x3c800000 ? units : 0);
    const float fraction = units - static_cast<float>(whole);
    const uint32_t subnormal = whole + (fraction > static_cast<float>(random >> 8) * 0x1p-24F ? 1 : 0);
    uint32_t code = magnitude < 0x3c800000 ? subnormal : normal;
    code = code > 0x7e ? 0x7e : code;
    code = magnitude >= 0x7f800000 ? kNan : code | ((bits >> 24) & 0x80);
    return static_cast<uint8_t>(code);
  }
  // The value of a code, without scale. Exact; NaN for 0x7f and 0xff.
  SLUICE_HOST_DEVICE static constexpr float decode_wide(uint32_t code) noexcept {
    const uint32_t magnitude = code & 0x7fU;
    const uint32_t sign = (code & 0x80U) << 24;
    const uint32_t normal = (magnitude << 20) + 0x3c000000;
    // 2^-6 plus the subnormal's value, minus 2^-6.
    const uint32_t subnormal = bits_of(float_of(normal + 0x00800000) - float_of(0x3c800000));
    const uint32_t bits = select_below(magnitude, 8, subnormal, normal) | sign;
    return float_of(select_below(magnitude, kNan, bits, 0x7fc00000));
  }
  SLUICE_HOST_DEVICE static constexpr float decode(uint8_t code) noexcept { return decode_wide(code); }
  // The value of a code with the scale of its group; the NaN has these bits on GPUs too.
  SLUICE_HOST_DEVICE static constexpr float value(uint8_t code, float scale) noexcept {
    const bool nan = (code & 0x7fU) == kNan || (bits_of(scale) & 0x7fffffff) > 0x7f800000;
    return nan ? float_of(0x7fc00000) : decode(code) * scale;
  }
};

struct Int8Block {
  static constexpr size_t kGroup = 128;
  static constexpr uint32_t kScaleNan = 0x7fc00000;

  // largest / 127, truncated to 16 significant bits and at least 2^-126; 0 for 0. So every code times the
  // scale is exact, and no code exceeds 127. `largest` is the largest magnitude of the group, finite.
  SLUICE_HOST_DEVICE static constexpr float scale(float largest) noexcept {
    const uint32_t bits = bits_of(largest / 127.0F) & 0xffffff00U;
    if (largest == 0) return 0;
    return float_of(bits < 0x00800000 ? 0x00800000 : bits);
  }
  // The factor of encode(): 0 for scale 0.
  SLUICE_HOST_DEVICE static constexpr float inverse(float scale) noexcept {
    return scale == 0 ? 0.0F : 1.0F / scale;
  }
  // Rounds x = value * inverse, whose magnitude is below 127.5, to nearest, ties to even.
  SLUICE_HOST_DEVICE static constexpr int8_t encode(float x) noexcept {
    // The last bit of 1.5 * 2^23 has the value 1, so the addition rounds.
    return static_cast<int8_t>(bits_of(x + 12582912.0F) & 0xffU);
  }
  // The same with stochastic rounding.
  SLUICE_HOST_DEVICE static constexpr int8_t encode(float x, uint32_t random) noexcept {
    const auto toward_zero = static_cast<int32_t>(x);
    const float rest = x - static_cast<float>(toward_zero);
    const float size = rest < 0 ? -rest : rest;
    const int32_t step = size > static_cast<float>(random >> 8) * 0x1p-24F ? (rest < 0 ? -1 : 1) : 0;
    const int32_t code = toward_zero + step;
    return static_cast<int8_t>(code > 127 ? 127 : code < -127 ? -127 : code);
  }
  // The value of a code with the scale of its group; the NaN has these bits on GPUs too.
  SLUICE_HOST_DEVICE static constexpr float value(int8_t code, float scale) noexcept {
    return bits_of(scale) == kScaleNan ? float_of(kScaleNan) : static_cast<float>(code) * scale;
  }
  // Whether a group may have this scale: 0, kScaleNan, or positive, normal and of 16 significant bits.
  SLUICE_HOST_DEVICE static constexpr bool is_valid_scale(uint32_t bits) noexcept {
    return bits == 0 || bits == kScaleNan || (bits >= 0x00800000 && bits < 0x7f800000 && (bits & 0xff) == 0);
  }
};

}  // namespace sluice::wire
