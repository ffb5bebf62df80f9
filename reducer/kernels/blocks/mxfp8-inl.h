// Adds and encodes blocks of mxfp8 with the bits of wire/payload/block_codec.h. Compiled once per target.
#include "reducer/kernels/targets.h"
//
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/float_bits.h"
#include "hwy/highway.h"
#include "reducer/kernels/blocks/block_sums-inl.h"
#include "reducer/kernels/convert-inl.h"
#include "reducer/kernels/float_format.h"
#include "reducer/kernels/vectors-inl.h"
#include "wire/payload/block_codec.h"

#if defined(SLUICE_REDUCER_KERNELS_BLOCKS_MXFP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_BLOCKS_MXFP8_INL_H_
#undef SLUICE_REDUCER_KERNELS_BLOCKS_MXFP8_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_BLOCKS_MXFP8_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

// A codec; see block_sums-inl.h.
struct Mxfp8Codec {
  using Scalar = wire::Mxfp8;
  static constexpr size_t kLanes = hn::MaxLanes(DF());
  static constexpr size_t kGroup = Scalar::kGroup;
  static constexpr size_t kGroups = wire::kBlockValues / kGroup;
  static constexpr size_t kScaleBytes = 1;

  static HWY_INLINE VF decode(const std::byte* scale, const std::byte* codes) {
    const auto patterns = load(hn::Rebind<uint8_t, DU>(), codes);
    return hn::Mul(widen<kE4m3Format>(hn::PromoteTo(DU(), patterns)),
                   hn::Set(DF(), Scalar::scale(std::to_integer<uint8_t>(*scale))));
  }

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  static HWY_INLINE void sum(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
    alignas(64) int16_t patterns[kBatch][wire::kBlockValues];
    for (size_t first = 0; first < sources.size(); first += kBatch) {
      const size_t count = sources.size() - first < kBatch ? sources.size() - first : kBatch;
      const BlockSources batch = sources.subspan(first, count);
      if (HWY_UNLIKELY(!find_patterns(batch, offset, patterns)))
        return sum_any<Mxfp8Codec>(sources, offset, values);
      const auto terms = [&](size_t k, size_t at) {
        return Term{batch[k] + offset + at / kGroup, patterns[k] + at};
      };
      if (first == 0) {
        add_products<true>(terms, count, values);
      } else {
        add_products<false>(terms, count, values);
      }
    }
  }

  template <size_t kCount>
  static HWY_NOINLINE void tree(const std::byte* const* sources, size_t offset, float* HWY_RESTRICT values) {
    alignas(64) int16_t patterns[kCount][wire::kBlockValues];
    if (HWY_UNLIKELY(!find_patterns({sources, kCount}, offset, patterns)))
      return tree_sum_any<Mxfp8Codec>({sources, kCount}, offset, values);
    const auto terms = [&](size_t k, size_t at) {
      return Term{sources[k] + offset + at / kGroup, patterns[k] + at};
    };
    add_product_tree<kCount, kGroup>(terms, values);
  }
#else
  static HWY_INLINE void sum(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
    sum_any<Mxfp8Codec>(sources, offset, values);
  }

  template <size_t kCount>
  static HWY_INLINE void tree(const std::byte* const* sources, size_t offset, float* HWY_RESTRICT values) {
    tree_sum_any<Mxfp8Codec>({sources, kCount}, offset, values);
  }
#endif

  static HWY_INLINE void encode(const float* HWY_RESTRICT values, std::byte* block) {
    alignas(64) uint32_t inverses[kGroups];
    if (HWY_UNLIKELY(!store_scales(values, block, inverses))) return encode_any(values, block);
    for (size_t at = 0; at < wire::kBlockValues; at += kGroup) {
      const VF inverse = hn::Set(DF(), float_of(inverses[at / kGroup]));
      for (size_t i = at; i < at + kGroup; i += kLanes) {
        const VU codes = nearest_finite(hn::Mul(hn::Load(DF(), values + i), inverse));
        store(hn::U8FromU32(codes), hn::Rebind<uint8_t, DU>(), block + wire::kBlockScaleBytes + i);
      }
    }
  }

 private:
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  using D16 = hn::ScalableTag<int16_t>;
  using DH = hn::Rebind<hwy::float16_t, DF>;
  static constexpr size_t kBatch = 8;            // blocks of one pass
  static constexpr uint8_t kLargestScale = 246;  // the largest one whose factor is finite

  // factor() of every scale.
  static constexpr std::array<float, kLargestScale + 1> kFactors = [] {
    std::array<float, kLargestScale + 1> all{};
    for (uint32_t s = 0; s < all.size(); ++s) all[s] = float_of((s + 8) << 23);
    return all;
  }();

  // Codes as f16, which the CPU widens to f32. An f16 pattern of the bits of a code has the value / 256.
  struct Term {
    const std::byte* scales;
    const int16_t* patterns;

    HWY_INLINE VF code(size_t i) const {
      return hn::PromoteTo(DF(), load(DH(), reinterpret_cast<const std::byte*>(patterns + i)));
    }
    HWY_INLINE VF factor(size_t i) const {
      return hn::Set(DF(), kFactors[std::to_integer<uint8_t>(scales[i / kGroup])]);
    }
  };

  // Stores the f16 patterns of the codes. They are read later, because a vector that was just stored cannot
  // be forwarded to loads of its halves. Returns false if a code is a NaN or a scale exceeds kLargestScale.
  static HWY_NOINLINE bool find_patterns(BlockSources sources, size_t offset,
                                         int16_t (*HWY_RESTRICT patterns)[wire::kBlockValues]) {
    constexpr uint64_t kHigh = 0x8080808080808080ULL;
    const hn::Repartition<uint8_t, DU> d8;
    const D16 d16;
    uint64_t large = 0;
    auto most = hn::Zero(d8);
    for (size_t k = 0; k < sources.size(); ++k) {
      const std::byte* const block = sources[k] + offset;
      const std::byte* const codes = block + wire::kBlockScaleBytes;
      uint64_t scales;
      std::memcpy(&scales, block, sizeof scales);
      large |= ((scales & ~kHigh) + 0x0909090909090909ULL) & scales;  // bit 7 of a byte above 246
      for (size_t i = 0; i < wire::kBlockValues; i += hn::MaxLanes(d8))
        most = hn::Max(most, hn::Or(load(d8, codes + i), hn::Set(d8, uint8_t{0x80})));
      for (size_t i = 0; i < wire::kBlockValues; i += hn::MaxLanes(d16)) {
        const auto extended = hn::PromoteTo(d16, load(hn::Rebind<int8_t, D16>(), codes + i));
        const auto pattern = hn::And(hn::ShiftLeft<7>(extended), hn::Set(d16, static_cast<int16_t>(0xbf80)));
        hn::Store(pattern, d16, patterns[k] + i);
      }
      prefetch_block(block);
    }
    return ((large & kHigh) == 0) & hn::AllFalse(d8, hn::Eq(most, hn::Set(d8, uint8_t{0xff})));
  }

  static HWY_INLINE VU halve(VU low, VU high) {
    return hn::Max(hn::ConcatEven(DU(), high, low), hn::ConcatOdd(DU(), high, low));
  }
#endif

  // Stores the largest magnitude of each group, as patterns. Infinities and NaNs are the largest.
  static HWY_INLINE void find_largest(const float* values, uint32_t* largest) {
    const DU du;
    const auto of_group = [values, du](size_t g) {
      VU all = hn::Zero(du);
      for (size_t i = g * kGroup; i < (g + 1) * kGroup; i += kLanes)
        all = hn::Max(all, hn::And(hn::BitCast(du, hn::Load(DF(), values + i)), hn::Set(du, 0x7fffffffU)));
      return all;
    };
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    // Halves the vectors of all groups together, which takes fewer shuffles.
    const VU low = halve(halve(of_group(0), of_group(1)), halve(of_group(2), of_group(3)));
    const VU high = halve(halve(of_group(4), of_group(5)), halve(of_group(6), of_group(7)));
    VU all = halve(low, high);
    if constexpr (kLanes == 2 * kGroups) all = halve(all, all);
    hn::Store(all, du, largest);
#else
    for (size_t g = 0; g < kGroups; ++g) largest[g] = hn::GetLane(hn::MaxOfLanes(du, of_group(g)));
#endif
  }

  // The codes of finite x = value / X / 2^13.
  //
  // With p the power of two below |value / X|, at least 2^-6, the sum |value / X| + 2^20 p has the last place
  // p / 8, which is the distance of neighboring codes, so the addition rounds. The sum ends with the
  // significand in units of p / 8, and 8 times the exponent of p plus this number is the code, but for a
  // constant. The division by 2^13 makes the constant a multiple of 256.
  static HWY_INLINE VU nearest_finite(VF x) {
    const DU du;
    const DF df;
    const VU bits = hn::BitCast(du, x);
    const VF magnitude = hn::BitCast(df, hn::And(bits, hn::Set(du, 0x7fffffffU)));
    const VF power = hn::BitCast(df, hn::And(bits, hn::Set(du, 0x7f800000U)));
    const VF p = hn::Max(power, hn::Set(df, 0x1p-19F));
    const VU sum = hn::BitCast(du, hn::MulAdd(p, hn::Set(df, 0x1p20F), magnitude));
    const VU code = hn::And(hn::Add(hn::ShiftRight<20>(sum), sum), hn::Set(du, 0x7fU));
    const VU sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(du, 0x80U));
    return hn::Or(code, sign);
  }

  // Stores the scales of a block, and for each group the pattern of 2^-13 / X. Returns false if a scale is
  // above 240, where that pattern would be subnormal. A group with an infinity or a NaN yields such a scale.
  static HWY_INLINE bool store_scales(const float* HWY_RESTRICT values, std::byte* block,
                                      uint32_t* HWY_RESTRICT inverses) {
    alignas(64) uint32_t largest[2 * kGroups];
    find_largest(values, largest);
    const hn::CappedTag<uint32_t, kGroups> d;
    auto most = hn::Zero(d);
    for (size_t g = 0; g < kGroups; g += hn::MaxLanes(d)) {
      // See Scalar::scale_code().
      const auto carried = hn::ShiftRight<23>(hn::Add(hn::Load(d, largest + g), hn::Set(d, 0x1fffffU)));
      const auto code = hn::Sub(hn::Max(carried, hn::Set(d, 8U)), hn::Set(d, 8U));
      most = hn::Max(most, code);
      hn::Store(hn::ShiftLeft<23>(hn::Sub(hn::Set(d, 241U), code)), d, inverses + g);
      store(hn::U8FromU32(code), hn::Rebind<uint8_t, decltype(d)>(), block + g);
    }
    return hn::AllFalse(d, hn::Gt(most, hn::Set(d, 240U)));
  }

  // encode() of any values.
  static HWY_NOINLINE void encode_any(const float* HWY_RESTRICT values, std::byte* block) {
    for (size_t at = 0; at < wire::kBlockValues; at += Scalar::kGroup) {
      const uint8_t code = Scalar::scale_code(largest_finite(values + at));
      const VF inverse = hn::Set(DF(), Scalar::inverse(code));
      block[at / Scalar::kGroup] = std::byte{code};
      for (size_t i = at; i < at + Scalar::kGroup; i += kLanes) {
        const VU codes = nearest(hn::Mul(hn::Load(DF(), values + i), inverse));
        store(hn::U8FromU32(codes), hn::Rebind<uint8_t, DU>(), block + wire::kBlockScaleBytes + i);
      }
    }
  }

  static HWY_INLINE float largest_finite(const float* group) {
    const DI di;
    auto largest = hn::Zero(di);
    for (size_t i = 0; i < Scalar::kGroup; i += kLanes) {
      const auto magnitude = hn::And(hn::BitCast(di, hn::Load(DF(), group + i)), hn::Set(di, 0x7fffffff));
      const auto is_finite = hn::Lt(magnitude, hn::Set(di, 0x7f800000));
      largest = hn::Max(largest, hn::IfThenElseZero(is_finite, magnitude));
    }
    return float_of(static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest))));
  }

  // Scalar::encode() for each lane.
  static HWY_INLINE VU nearest(VF x) {
    const DU du;
    const DF df;
    constexpr uint32_t kSmallest = 0x3c800000;  // the smallest normal number of the format, 2^-6
    const VU bits = hn::BitCast(du, x);
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7fffffffU));
    const VU odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(du, 1U));
    const VU normal =
        hn::ShiftRight<20>(hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0x7ffffU - 0x3c000000U)));
    const VU anchor = hn::Set(du, 0x46800000U);  // 2^14
    const VU subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, anchor))), anchor);
    const VU sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(du, 0x80U));
    const VU code = hn::Or(select_below(magnitude, kSmallest, subnormal, normal), sign);
    return select_below(magnitude, 0x7f800000U, code, hn::Set(du, uint32_t{Scalar::kNan}));
  }
};

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
