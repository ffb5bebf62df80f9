// Adds and encodes blocks of int8-block with the bits of wire/payload/block_codec.h. Compiled once per
// target.
#include "reducer/kernels/targets.h"
//
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/float_bits.h"
#include "hwy/highway.h"
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

// A codec of blocks for fold_block.cc. `values` is aligned to vectors.
struct Int8BlockCodec {
  using Scalar = wire::Int8Block;
  static constexpr size_t kLanes = hn::MaxLanes(DF());

  // Adds the values of a block to `values`. kFirst: overwrites them, so that -0 stays -0.
  template <bool kFirst>
  static HWY_INLINE void add(const std::byte* block, float* HWY_RESTRICT values) {
    const DF df;
    const std::byte* const codes = block + wire::kBlockScaleBytes;
    for (size_t at = 0; at < wire::kBlockValues; at += Scalar::kGroup) {
      float factor = 0;
      std::memcpy(&factor, block + at / Scalar::kGroup * sizeof factor, sizeof factor);
      const VF scale = hn::Set(df, factor);
      for (size_t i = at; i < at + Scalar::kGroup; i += kLanes) {
        const auto integers = hn::PromoteTo(DI(), load(hn::Rebind<int8_t, DI>(), codes + i));
        const VF product = hn::Mul(hn::ConvertTo(df, integers), scale);
        hn::Store(kFirst ? product : hn::Add(hn::Load(df, values + i), product), df, values + i);
      }
    }
  }

  static HWY_INLINE void encode(const float* HWY_RESTRICT values, std::byte* block) {
    std::byte* const codes = block + wire::kBlockScaleBytes;
    for (size_t at = 0; at < wire::kBlockValues; at += Scalar::kGroup) {
      const uint32_t largest = largest_magnitude(values + at);
      const bool finite = largest < 0x7f800000;
      const float scale = finite ? Scalar::scale(float_of(largest)) : float_of(Scalar::kScaleNan);
      std::memcpy(block + at / Scalar::kGroup * sizeof scale, &scale, sizeof scale);
      if (!finite) {
        std::memset(codes + at, 0, Scalar::kGroup);
        continue;
      }
      const VF inverse = hn::Set(DF(), Scalar::inverse(scale));
      const VF anchor = hn::Set(DF(), 12582912.0F);  // 1.5 * 2^23, whose last bit has the value 1
      for (size_t i = at; i < at + Scalar::kGroup; i += kLanes) {
        const VF x = hn::Mul(hn::Load(DF(), values + i), inverse);
        const VU integers = hn::And(hn::BitCast(DU(), hn::Add(x, anchor)), hn::Set(DU(), 0xffU));
        store(hn::U8FromU32(integers), hn::Rebind<uint8_t, DU>(), codes + i);
      }
    }
  }

 private:
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
