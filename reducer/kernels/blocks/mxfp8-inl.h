// Adds and encodes blocks of mxfp8 with the bits of wire/payload/block_codec.h. Compiled once per target.
#include "reducer/kernels/targets.h"
//
#include <cstddef>
#include <cstdint>

#include "core/float_bits.h"
#include "hwy/highway.h"
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

// A codec of blocks for fold_block.cc. `values` is aligned to vectors.
struct Mxfp8Codec {
  using Scalar = wire::Mxfp8;
  static constexpr size_t kLanes = hn::MaxLanes(DF());

  // Adds the values of a block to `values`. kFirst: overwrites them, so that -0 stays -0.
  template <bool kFirst>
  static HWY_INLINE void add(const std::byte* block, float* HWY_RESTRICT values) {
    const DF df;
    const std::byte* const codes = block + wire::kBlockScaleBytes;
    for (size_t at = 0; at < wire::kBlockValues; at += Scalar::kGroup) {
      const VF scale = hn::Set(df, Scalar::scale(std::to_integer<uint8_t>(block[at / Scalar::kGroup])));
      for (size_t i = at; i < at + Scalar::kGroup; i += kLanes) {
        const auto patterns = load(hn::Rebind<uint8_t, DU>(), codes + i);
        const VF product = hn::Mul(widen<kE4m3Format>(hn::PromoteTo(DU(), patterns)), scale);
        hn::Store(kFirst ? product : hn::Add(hn::Load(df, values + i), product), df, values + i);
      }
    }
  }

  static HWY_INLINE void encode(const float* HWY_RESTRICT values, std::byte* block) {
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

 private:
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
