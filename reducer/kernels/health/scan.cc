#include "reducer/kernels/health/scan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reducer/kernels/health/scan.cc"
#include "reducer/kernels/targets.h"
//
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/blocks/int8_block-inl.h"
#include "reducer/kernels/blocks/mxfp8-inl.h"
#include "reducer/kernels/elements-inl.h"
#include "reducer/kernels/float_format.h"
#include "reducer/kernels/vectors-inl.h"
#include "wire/payload/block_codec.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

// The largest lane. Highway 1.0.3 has no maximum over lanes of 8 and 16 bits.
template <class D, class V>
HWY_INLINE hn::TFromD<D> largest_lane([[maybe_unused]] D d, V v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::GetLane(v);
#else
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) > 16) {
    const hn::Half<D> half;
    return largest_lane(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    constexpr size_t kSize = sizeof(hn::TFromD<D>);
    const auto shifted = [d](auto x, auto bytes) HWY_ATTR {
      const hn::Repartition<uint8_t, D> du;
      return hn::BitCast(d, hn::ShiftRightBytes<decltype(bytes)::value>(du, hn::BitCast(du, x)));
    };
    v = hn::Max(v, shifted(v, std::integral_constant<int, 8>()));
    if constexpr (kSize <= 4) v = hn::Max(v, shifted(v, std::integral_constant<int, 4>()));
    if constexpr (kSize <= 2) v = hn::Max(v, shifted(v, std::integral_constant<int, 2>()));
    if constexpr (kSize <= 1) v = hn::Max(v, shifted(v, std::integral_constant<int, 1>()));
    return hn::GetLane(v);
  }
#endif
}

// The largest of `count` patterns without their signs. Patterns of magnitudes have the order of their values,
// so no value is decoded.
template <class U>
HWY_INLINE U largest_pattern(const std::byte* p, size_t count, U mask) {
  const hn::ScalableTag<U> d;
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<U>());
  constexpr size_t kBytes = kLanes * sizeof(U);
  const auto magnitudes = hn::Set(d, mask);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  size_t i = 0;
  for (; count - i >= 4 * kLanes; i += 4 * kLanes, p += 4 * kBytes) {
    a = hn::Max(a, hn::And(load(d, p), magnitudes));
    b = hn::Max(b, hn::And(load(d, p + kBytes), magnitudes));
    c = hn::Max(c, hn::And(load(d, p + 2 * kBytes), magnitudes));
    e = hn::Max(e, hn::And(load(d, p + 3 * kBytes), magnitudes));
  }
  for (; count - i >= kLanes; i += kLanes, p += kBytes) a = hn::Max(a, hn::And(load(d, p), magnitudes));
  U largest = largest_lane(d, hn::Max(hn::Max(a, b), hn::Max(c, e)));
  for (; i < count; ++i, p += sizeof(U)) {
    U pattern;
    std::memcpy(&pattern, p, sizeof pattern);
    largest = std::max<U>(largest, pattern & mask);
  }
  return largest;
}

template <const FloatFormat& kFormat>
double value_of(uint64_t magnitude) {
  if constexpr (kFormat.bits == 64) {
    return std::bit_cast<double>(magnitude);
  } else if constexpr (kFormat.bits == 32) {
    return std::bit_cast<float>(static_cast<uint32_t>(magnitude));
  } else {
    // As a pattern of f32 it has the value times a power of two, also if it is subnormal.
    const auto pattern = static_cast<uint32_t>(magnitude << (23 - kFormat.mantissa_bits));
    return double{float_of(pattern)} * std::bit_cast<double>(uint64_t{1023 + 127 - kFormat.bias} << 52);
  }
}

// The smallest magnitude that is not finite.
template <const FloatFormat& kFormat>
constexpr uint64_t kNonFinite = kFormat.has_infinity ? kFormat.largest : kFormat.largest + 1;

// Adds kSampleRun values to the sample. Value i belongs to sum i % 8, and the sums have one order, so all
// targets return the same bits.
template <class T>
HWY_INLINE void add_run(const T* HWY_RESTRICT values, HealthStats& stats) {
  using D = hn::CappedTag<double, 8>;
  const D d;
  const hn::Rebind<T, D> narrow;
  constexpr size_t kLanes = hn::MaxLanes(D());
  constexpr size_t kVectors = 8 / kLanes;
  const auto infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  hn::Vec<D> sums[kVectors], zeros[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sums[v] = zeros[v] = hn::Zero(d);
  for (size_t i = 0; i < kSampleRun; i += 8) {
    for (size_t v = 0; v < kVectors; ++v) {
      auto x = hn::Zero(d);
      if constexpr (sizeof(T) == sizeof(double)) {
        x = hn::Load(d, values + i + v * kLanes);
      } else {
        x = hn::PromoteTo(d, hn::Load(narrow, values + i + v * kLanes));
      }
      const auto finite = hn::IfThenElseZero(hn::Lt(hn::Abs(x), infinity), x);
      sums[v] = hn::Add(sums[v], hn::Mul(finite, finite));
      zeros[v] = hn::Add(zeros[v], hn::IfThenElseZero(hn::Eq(x, hn::Zero(d)), hn::Set(d, 1.0)));
    }
  }
  alignas(64) double s[8], z[8];
  for (size_t v = 0; v < kVectors; ++v) {
    hn::Store(sums[v], d, s + v * kLanes);
    hn::Store(zeros[v], d, z + v * kLanes);
  }
  stats.square_sum += ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  stats.zeros += static_cast<uint64_t>(((z[0] + z[4]) + (z[2] + z[6])) + ((z[1] + z[5]) + (z[3] + z[7])));
}

// The part of the sample in [first, first + count). A run that lies there in part is completed with zeros.
template <class Kind>
HWY_INLINE void add_sample(const std::byte* data, size_t first, size_t count, HealthStats& stats) {
  using T = hn::TFromD<typename Kind::D>;
  static_assert(kSampleRun % Kind::kElements == 0);
  alignas(64) T values[kSampleRun];
  alignas(64) std::byte padded[kSampleRun * Kind::kBytes];
  const size_t end = first + count;
  for (size_t run = first / kSamplePeriod * kSamplePeriod; run < end; run += kSamplePeriod) {
    const size_t from = std::max(run, first);
    const size_t to = std::min(run + kSampleRun, end);
    if (from >= to) continue;
    const std::byte* source = data + (from - first) * Kind::kBytes;
    if (to - from < kSampleRun) {
      std::memset(padded, 0, sizeof padded);
      std::memcpy(padded + (from - run) * Kind::kBytes, source, (to - from) * Kind::kBytes);
      source = padded;
    }
    auto* const wide = reinterpret_cast<std::byte*>(values);
    for (size_t i = 0; i < kSampleRun; i += Kind::kElements)
      Kind::store_wide(Kind::load(source + i * Kind::kBytes), wide + i * Kind::kWideBytes);
    add_run(values, stats);
    stats.zeros -= kSampleRun - (to - from);
    stats.sampled += to - from;
  }
}

// Counts the non-finite values and finds the largest finite magnitude, one value at a time.
template <class U, const FloatFormat& kFormat>
HWY_NOINLINE U count_non_finite(const std::byte* data, size_t count, HealthStats& stats) {
  U largest = 0;
  for (size_t i = 0; i < count; ++i) {
    U magnitude;
    std::memcpy(&magnitude, data + i * sizeof magnitude, sizeof magnitude);
    magnitude &= static_cast<U>(kFormat.magnitude_mask());
    if (magnitude >= kNonFinite<kFormat>) {
      ++stats.non_finite;
    } else {
      largest = std::max(largest, magnitude);
    }
  }
  return largest;
}

template <class Kind, class U, const FloatFormat& kFormat>
void scan_floats(const std::byte* data, size_t first, size_t count, HealthStats& stats) noexcept {
  static_assert(sizeof(U) == Kind::kBytes);
  U largest = largest_pattern<U>(data, count, static_cast<U>(kFormat.magnitude_mask()));
  if (largest >= kNonFinite<kFormat>) largest = count_non_finite<U, kFormat>(data, count, stats);
  stats.largest = std::max(stats.largest, value_of<kFormat>(largest));
  add_sample<Kind>(data, first, count, stats);
}

template <size_t kBytes>
void scan_integers(const std::byte* data, size_t /*first*/, size_t count, HealthStats& stats) noexcept {
  if (largest_pattern<uint8_t>(data, count * kBytes, 0xff) != 0) stats.largest = 1;
}

// The largest of kCount code magnitudes; `kSigned`: of two's complement codes, else of codes with a sign bit.
template <size_t kCount, bool kSigned>
HWY_INLINE uint32_t largest_code(const std::byte* codes) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t largest = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const auto code = std::to_integer<uint32_t>(codes[i]);
    largest = std::max(largest, kSigned ? (code < 128 ? code : 256 - code) : code & 0x7f);
  }
  return largest;
#else
  using D = hn::Full128<std::conditional_t<kSigned, int8_t, uint8_t> >;
  const D d;
  const hn::Full128<uint8_t> du;
  const auto magnitude = [&](const std::byte* p) HWY_ATTR {
    if constexpr (kSigned) {
      return hn::BitCast(du, hn::Abs(load(d, p)));
    } else {
      return hn::And(load(d, p), hn::Set(d, uint8_t{0x7f}));
    }
  };
  auto v = magnitude(codes);
  for (size_t i = 16; i < kCount; i += 16) v = hn::Max(v, magnitude(codes + i));
  return largest_lane(du, v);
#endif
}

// Code and scale of groups of a block type. key() grows with the bound of the magnitudes of a group whose
// largest code is `code`, and is kNonFiniteKey if one may not be finite.
constexpr uint32_t kNonFiniteKey = 0x7fffffff;
struct Mxfp8Groups {
  using Codec = Mxfp8Codec;
  using Scalar = wire::Mxfp8;
  static constexpr bool kSigned = false;
  static float scale(const std::byte* block, size_t group) {
    return Scalar::scale(std::to_integer<uint8_t>(block[group]));
  }
  static float value(uint32_t code, float scale) { return Scalar::value(static_cast<uint8_t>(code), scale); }
  // The exponents of code and scale add up, above the significand. A subnormal code has a smaller value than
  // its key. Scales from 2^119 on may overflow.
  static uint32_t key(const std::byte* block, size_t group, uint32_t code) {
    const auto scale = std::to_integer<uint32_t>(block[group]);
    return code == Scalar::kNan || scale >= 127 + 119 ? kNonFiniteKey : (scale << 3) + code;
  }
  // The largest key whose groups have no value above `largest`; 0 if there may be none.
  static uint32_t key_of(float largest) {
    const uint32_t pattern = bits_of(largest);
    return pattern < 0x00800000 ? 0 : (pattern >> 20) + (7 << 3);
  }
};
struct Int8Groups {
  using Codec = Int8BlockCodec;
  using Scalar = wire::Int8Block;
  static constexpr bool kSigned = true;
  static float scale(const std::byte* block, size_t group) {
    float scale = 0;
    std::memcpy(&scale, block + group * sizeof scale, sizeof scale);
    return scale;
  }
  static float value(uint32_t code, float scale) { return Scalar::value(static_cast<int8_t>(code), scale); }
  static uint32_t key(const std::byte* block, size_t group, uint32_t code) {
    const uint32_t pattern = bits_of(value(code, scale(block, group))) & 0x7fffffff;
    return pattern >= 0x7f800000 ? kNonFiniteKey : pattern;
  }
  static uint32_t key_of(float largest) { return bits_of(largest); }
};

// Counts the non-finite values of a block and finds the largest finite magnitude, one value at a time.
template <class Groups>
HWY_NOINLINE float count_non_finite_of_block(const std::byte* block, HealthStats& stats) {
  float largest = 0;
  for (size_t i = 0; i < wire::kBlockValues; ++i) {
    const float scale = Groups::scale(block, i / Groups::Scalar::kGroup);
    const auto code = std::to_integer<uint32_t>(block[wire::kBlockScaleBytes + i]);
    const float value = std::fabs(Groups::value(code, scale));
    if (is_finite(value)) {
      largest = std::max(largest, value);
    } else {
      ++stats.non_finite;
    }
  }
  return largest;
}

// Reads codes and scales. Decodes blocks of the sample, groups that may have a larger value than those
// before, and blocks with values that may not be finite.
template <class Groups>
void scan_blocks(const std::byte* data, size_t first, size_t count, HealthStats& stats) noexcept {
  constexpr size_t kGroup = Groups::Scalar::kGroup;
  constexpr size_t kGroups = wire::kBlockValues / kGroup;
  auto largest = static_cast<float>(stats.largest);
  uint32_t largest_key = Groups::key_of(largest);
  for (size_t i = 0; i < count; ++i, data += wire::kBlockBytes) {
    uint32_t codes[kGroups];
    uint32_t keys[kGroups];
    for (size_t g = 0; g < kGroups; ++g) {
      codes[g] = largest_code<kGroup, Groups::kSigned>(data + wire::kBlockScaleBytes + g * kGroup);
      keys[g] = Groups::key(data, g, codes[g]);
    }
    if (*std::max_element(keys, keys + kGroups) == kNonFiniteKey) {
      largest = std::max(largest, count_non_finite_of_block<Groups>(data, stats));
    } else {
      for (size_t g = 0; g < kGroups; ++g) {
        if (keys[g] <= largest_key) continue;
        const float value = std::fabs(Groups::value(codes[g], Groups::scale(data, g)));
        if (value <= largest) continue;
        largest = value;
        largest_key = Groups::key_of(largest);
      }
    }
    if ((first + i) % kSampledBlocks != 0) continue;
    alignas(64) float values[wire::kBlockValues];
    sum_any<typename Groups::Codec>({&data, 1}, 0, values);
    for (size_t k = 0; k < wire::kBlockValues; k += kSampleRun) add_run(values + k, stats);
    stats.sampled += wire::kBlockValues;
  }
  stats.largest = std::max(stats.largest, static_cast<double>(largest));
}

ScanFunction find(wire::DType t) noexcept {
  switch (t) {
    case wire::DType::kF32: return scan_floats<Plain<float>, uint32_t, kF32Format>;
    case wire::DType::kF64: return scan_floats<Plain<double>, uint64_t, kF64Format>;
    case wire::DType::kF16: return scan_floats<F16, uint16_t, kF16Format>;
    case wire::DType::kBf16: return scan_floats<Bf16, uint16_t, kBf16Format>;
    case wire::DType::kF8e4m3: return scan_floats<E4m3, uint8_t, kE4m3Format>;
    case wire::DType::kF8e5m2: return scan_floats<E5m2, uint8_t, kE5m2Format>;
    case wire::DType::kMxfp8: return scan_blocks<Mxfp8Groups>;
    case wire::DType::kInt8Block: return scan_blocks<Int8Groups>;
    case wire::DType::kI8:
    case wire::DType::kU8: return scan_integers<1>;
    case wire::DType::kI32:
    case wire::DType::kU32: return scan_integers<4>;
    case wire::DType::kI64:
    case wire::DType::kU64: return scan_integers<8>;
  }
  return nullptr;
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "reducer/kernels/targets/runnable_targets.h"

namespace sluice::kernels {
namespace {

constexpr CompiledTarget<ScanTarget> kCompiled[] = {SLUICE_COMPILED_TARGETS(find)};

}  // namespace

std::span<const ScanTarget> scan_targets() noexcept {
  static const RunnableTargets runnable(kCompiled);
  return runnable.all();
}

ScanFunction find_scan(wire::DType t) noexcept {
  return scan_targets().front().find(t);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
