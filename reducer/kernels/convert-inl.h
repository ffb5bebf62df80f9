// Converts small floats to f32 and back. Only integer operations and exact float operations are used, so that
// every target produces the same bits. Highway 1.0.3 itself truncates to bf16, and its f16 emulation differs
// from the hardware. Compiled once per target.
#include "reducer/kernels/targets.h"
//
#include <cstdint>

#include "hwy/highway.h"
#include "reducer/kernels/float_format.h"
#include "reducer/kernels/vectors-inl.h"

#if defined(SLUICE_REDUCER_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_CONVERT_INL_H_
#undef SLUICE_REDUCER_KERNELS_CONVERT_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_CONVERT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<int32_t>;
using DU = hn::ScalableTag<uint32_t>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

// The signed comparison is correct because both sides are magnitudes.
template <class V>
HWY_INLINE V select_below(V value, uint32_t limit, V below, V otherwise) {
  const DI di;
  const auto less = hn::Lt(hn::BitCast(di, value), hn::Set(di, static_cast<int32_t>(limit)));
  return hn::IfThenElse(hn::RebindMask(DU(), less), below, otherwise);
}

// `pattern` has one pattern of kFormat in the low bits of each lane and zeros above.
template <const FloatFormat& kFormat>
HWY_INLINE VF widen(VU pattern) {
  const DU du;
  const DF df;
  if constexpr (kFormat.mantissa_bits == kBf16Format.mantissa_bits) {
    return hn::BitCast(df, hn::ShiftLeft<16>(pattern));
  } else {
    constexpr int kShift = 23 - kFormat.mantissa_bits;
    constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.bias) << 23;
    constexpr uint32_t kOne = uint32_t{1} << 23;  // of the exponent
    const VU magnitude =
        hn::ShiftLeft<kShift>(hn::And(pattern, hn::Set(du, static_cast<uint32_t>(kFormat.magnitude_mask()))));
    const VU sign = hn::And(hn::ShiftLeft<32 - kFormat.bits>(pattern), hn::Set(du, 0x80000000U));
    const VU normal = hn::Add(magnitude, hn::Set(du, kRebias));
    // 2^k * 1.fraction - 2^k, where k is the exponent of subnormals: exact and without subnormal f32 values.
    const VU implicit_one = hn::Set(du, kRebias + kOne);
    const VU subnormal = hn::BitCast(
        du, hn::Sub(hn::BitCast(df, hn::Add(magnitude, implicit_one)), hn::BitCast(df, implicit_one)));
    VU wide = select_below(magnitude, kOne, subnormal, normal);
    if constexpr (kFormat.has_infinity) {
      constexpr auto kInfinity = static_cast<uint32_t>(kFormat.largest << kShift);
      static_assert((kInfinity + 2 * kRebias) == 0x7f800000U);
      wide = select_below(magnitude, kInfinity, wide, hn::Add(magnitude, hn::Set(du, 2 * kRebias)));
    } else {
      constexpr auto kNan = static_cast<uint32_t>(kFormat.nan << kShift);
      wide = select_below(magnitude, kNan, wide, hn::Set(du, 0x7fc00000U));
    }
    return hn::BitCast(df, hn::Or(wide, sign));
  }
}

// The nearest pattern of kFormat in the low bits of each lane, zeros above. A NaN in `value` must be
// canonical.
template <const FloatFormat& kFormat>
HWY_INLINE VU round(VF value) {
  const DU du;
  const DF df;
  constexpr int kShift = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kHalf = (uint32_t{1} << (kShift - 1)) - 1;
  const VU one = hn::Set(du, uint32_t{1});
  const VU u = hn::BitCast(du, value);
  if constexpr (kFormat.mantissa_bits == kBf16Format.mantissa_bits) {
    // bf16 has f32's exponents, so a carry leads to the next number or to infinity. The canonical NaN is too
    // far from the end to carry.
    const VU odd = hn::And(hn::ShiftRight<kShift>(u), one);
    return hn::ShiftRight<kShift>(hn::Add(hn::Add(u, hn::Set(du, kHalf)), odd));
  } else {
    constexpr auto kRebias = static_cast<uint32_t>(127 - kFormat.bias) << 23;
    // Extends the format's exponents beyond its largest value: clamping there clamps the result.
    constexpr auto kClamp = static_cast<uint32_t>((kFormat.overflow << kShift) + kRebias);
    const VU magnitude = hn::And(u, hn::Set(du, 0x7fffffffU));
    const VU sign = hn::ShiftRight<32 - kFormat.bits>(hn::And(u, hn::Set(du, 0x80000000U)));
    const VU clamped = hn::Min(magnitude, hn::Set(du, kClamp));
    const VU odd = hn::And(hn::ShiftRight<kShift>(clamped), one);
    const VU normal = hn::ShiftRight<kShift>(hn::Add(hn::Add(clamped, hn::Set(du, kHalf - kRebias)), odd));
    // Adds a power of two whose last place is that of kFormat's subnormals: the addition rounds to nearest
    // even.
    constexpr auto kAnchor = static_cast<uint32_t>(127 + 24 - kFormat.bias - kFormat.mantissa_bits) << 23;
    const VU anchor = hn::Set(du, kAnchor);
    const VU subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, clamped), hn::BitCast(df, anchor))), anchor);
    const VU pattern = select_below(clamped, kRebias + (uint32_t{1} << 23), subnormal, normal);
    const VU nan = hn::Set(du, static_cast<uint32_t>(kFormat.nan));
    return select_below(magnitude, 0x7f800001U, hn::Or(pattern, sign), nan);
  }
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
