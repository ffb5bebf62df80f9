// Adds and encodes blocks of int8-block with the bits of wire/payload/block_codec.h. Compiled once per
// target.
#include "reducer/kernels/targets.h"
//
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/float_bits.h"
#include "hwy/highway.h"
#include "reducer/kernels/blocks/block_sums-inl.h"
#include "reducer/kernels/convert-inl.h"
#include "reducer/kernels/vectors-inl.h"
#include "wire/payload/block_codec.h"

#if defined(SLUICE_REDUCER_KERNELS_BLOCKS_INT8_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_BLOCKS_INT8_BLOCK_INL_H_
#undef SLUICE_REDUCER_KERNELS_BLOCKS_INT8_BLOCK_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_BLOCKS_INT8_BLOCK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

// A codec; see block_sums-inl.h.
struct Int8BlockCodec {
  using Scalar = wire::Int8Block;
  static constexpr size_t kLanes = hn::MaxLanes(DF());
  static constexpr size_t kGroup = Scalar::kGroup;
  static constexpr size_t kGroups = wire::kBlockValues / kGroup;
  static constexpr size_t kScaleBytes = sizeof(float);

  static HWY_INLINE VF decode(const std::byte* scale, const std::byte* codes) {
    const Term term{scale, codes};
    return hn::Mul(term.code(0), term.factor(0));
  }

  static HWY_INLINE void sum(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
    uint64_t special = 0;
    for (const std::byte* source : sources) special |= special_scales(source + offset);
    if (HWY_UNLIKELY(special != 0)) return sum_any<Int8BlockCodec>(sources, offset, values);
    const auto terms = [&](size_t k, size_t at) {
      const std::byte* const block = sources[k] + offset;
      if (at == 0) prefetch_block(block);
      return Term{block + at / kGroup * kScaleBytes, block + wire::kBlockScaleBytes + at};
    };
    add_products<true>(terms, sources.size(), values);
  }

  template <size_t kCount>
  static HWY_NOINLINE void tree(const std::byte* const* sources, size_t offset, float* HWY_RESTRICT values) {
    uint64_t special = 0;
    for (size_t k = 0; k < kCount; ++k) special |= special_scales(sources[k] + offset);
    if (HWY_UNLIKELY(special != 0)) return tree_sum_any<Int8BlockCodec>({sources, kCount}, offset, values);
    // One line ahead for each line read: prefetches of eight whole blocks at once would delay loads.
    const auto terms = [&](size_t k, size_t at) {
      const std::byte* const block = sources[k] + offset;
      if (at % 64 == 0) __builtin_prefetch(block + 2 * wire::kBlockBytes + at);
      return Term{block + at / kGroup * kScaleBytes, block + wire::kBlockScaleBytes + at};
    };
    add_product_tree<kCount, kGroup>(terms, values);
  }

  static HWY_INLINE void encode(const float* HWY_RESTRICT values, std::byte* block) {
    uint32_t largest[kGroups];
    for (size_t g = 0; g < kGroups; ++g) largest[g] = largest_magnitude(values + g * kGroup);
    for (size_t g = 0; g < kGroups; ++g) {
      std::byte* const codes = block + wire::kBlockScaleBytes + g * kGroup;
      const bool finite = largest[g] < 0x7f800000;
      const float scale = finite ? Scalar::scale(float_of(largest[g])) : float_of(Scalar::kScaleNan);
      std::memcpy(block + g * kScaleBytes, &scale, kScaleBytes);
      if (finite) {
        encode_group(values + g * kGroup, Scalar::inverse(scale), codes);
      } else {
        std::memset(codes, 0, kGroup);
      }
    }
  }

 private:
  struct Term {
    const std::byte* scales;
    const std::byte* codes;

    HWY_INLINE VF code(size_t i) const {
      return hn::ConvertTo(DF(), hn::PromoteTo(DI(), load(hn::Rebind<int8_t, DI>(), codes + i)));
    }
    HWY_INLINE VF factor(size_t i) const {
      float scale = 0;
      std::memcpy(&scale, scales + i / kGroup * kScaleBytes, sizeof scale);
      return hn::Set(DF(), scale);
    }
  };

  // Not 0 unless both scales are below 2^121, so that no product overflows, positive, and of 16 significant
  // bits, so that products are exact.
  static HWY_INLINE uint64_t special_scales(const std::byte* block) {
    uint64_t scales;
    std::memcpy(&scales, block, sizeof scales);
    const uint64_t large = ((scales & 0x7fffffff7fffffffULL) + 0x0400000004000000ULL) | scales;
    return (large & 0x8000000080000000ULL) | (scales & 0x000000ff000000ffULL);
  }

  static HWY_INLINE void encode_group(const float* group, float factor, std::byte* codes) {
    const DF df;
    const VF inverse = hn::Set(df, factor);
    const VF anchor =
        hn::Set(df, 12582912.0F);  // 1.5 * 2^23: its last bit has the value 1, so a sum is rounded
    for (size_t i = 0; i < kGroup; i += kLanes) {
      const VF x = hn::Mul(hn::Load(df, group + i), inverse);
      const VU integers = hn::And(hn::BitCast(DU(), hn::Add(x, anchor)), hn::Set(DU(), 0xffU));
      store(hn::U8FromU32(integers), hn::Rebind<uint8_t, DU>(), codes + i);
    }
  }

  // The pattern of the largest magnitude. Infinities and NaNs are the largest.
  static HWY_INLINE uint32_t largest_magnitude(const float* group) {
    const DI di;
    auto largest = hn::Zero(di);
    for (size_t i = 0; i < Scalar::kGroup; i += kLanes) {
      const auto bits = hn::BitCast(di, hn::Load(DF(), group + i));
      largest = hn::Max(largest, hn::And(bits, hn::Set(di, 0x7fffffff)));
    }
    return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  }
};

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
