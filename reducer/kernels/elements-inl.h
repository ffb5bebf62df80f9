// The kinds of element: how a step's bytes of a source become vectors, and vectors become bytes of the
// result. A kind is a struct with these members:
//   D, Pack                tag and arrangement (One, Two, Four) of the vectors of one step
//   kElements              elements per step
//   kBytes, kWideBytes     bytes of an element in the wire type and in the accumulation type
//   load, store            wire type
//   load_wide, store_wide  accumulation type
// Compiled once per target.
#include "reducer/kernels/targets.h"
//
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "reducer/kernels/convert-inl.h"
#include "reducer/kernels/float_format.h"
#include "reducer/kernels/vectors-inl.h"

#if defined(SLUICE_REDUCER_KERNELS_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_ELEMENTS_INL_H_
#undef SLUICE_REDUCER_KERNELS_ELEMENTS_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_ELEMENTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

// Elements of T, which is also the accumulation type.
template <class T>
struct Plain {
  using D = hn::ScalableTag<T>;
  template <class V>
  using Pack = One<V>;
  using Vectors = One<hn::Vec<D>>;
  static constexpr size_t kElements = hn::MaxLanes(D());
  static constexpr size_t kBytes = sizeof(T);
  static constexpr size_t kWideBytes = sizeof(T);
  static HWY_INLINE Vectors load(const std::byte* p) { return {kernels::HWY_NAMESPACE::load(D(), p)}; }
  static HWY_INLINE Vectors load_wide(const std::byte* p) { return load(p); }
  static HWY_INLINE void store(Vectors v, std::byte* p) { kernels::HWY_NAMESPACE::store(v.a, D(), p); }
  static HWY_INLINE void store_wide(Vectors v, std::byte* p) { store(v, p); }
};

// f16 and bf16 as f32. Vector a holds the even elements and b the odd ones, so that widening needs no
// shuffle.
template <const FloatFormat& kFormat>
struct Small16 {
  using D = DF;
  template <class V>
  using Pack = Two<V>;
  using Vectors = Two<VF>;
  static constexpr size_t kElements = 2 * hn::MaxLanes(D());
  static constexpr size_t kBytes = 2;
  static constexpr size_t kWideBytes = 4;
  static HWY_INLINE Vectors load(const std::byte* p) {
    const DU du;
    const VU both = kernels::HWY_NAMESPACE::load(du, p);
    if constexpr (kFormat.mantissa_bits == kBf16Format.mantissa_bits) {
      return {widen<kFormat>(both), hn::BitCast(D(), hn::And(both, hn::Set(du, 0xffff0000U)))};
    } else {
      return {widen<kFormat>(hn::And(both, hn::Set(du, 0xffffU))), widen<kFormat>(hn::ShiftRight<16>(both))};
    }
  }
  static HWY_INLINE Vectors load_wide(const std::byte* p) {
    Vectors v;
    load_interleaved(D(), p, v);
    return v;
  }
  static HWY_INLINE void store(Vectors v, std::byte* p) {
    const VU both = hn::Or(round<kFormat>(v.a), hn::ShiftLeft<16>(round<kFormat>(v.b)));
    kernels::HWY_NAMESPACE::store(both, DU(), p);
  }
  static HWY_INLINE void store_wide(Vectors v, std::byte* p) { store_interleaved(v, D(), p); }
};

// e4m3 and e5m2 as f32. Element 4i + k is lane i of vector k.
template <const FloatFormat& kFormat>
struct Small8 {
  using D = DF;
  template <class V>
  using Pack = Four<V>;
  using Vectors = Four<VF>;
  static constexpr size_t kElements = 4 * hn::MaxLanes(D());
  static constexpr size_t kBytes = 1;
  static constexpr size_t kWideBytes = 4;
  static HWY_INLINE Vectors load(const std::byte* p) {
    const DU du;
    const VU four = kernels::HWY_NAMESPACE::load(du, p);
    const VU low = hn::Set(du, 0xffU);
    return {widen<kFormat>(hn::And(four, low)), widen<kFormat>(hn::And(hn::ShiftRight<8>(four), low)),
            widen<kFormat>(hn::And(hn::ShiftRight<16>(four), low)), widen<kFormat>(hn::ShiftRight<24>(four))};
  }
  static HWY_INLINE Vectors load_wide(const std::byte* p) {
    Vectors v;
    load_interleaved(D(), p, v);
    return v;
  }
  static HWY_INLINE void store(Vectors v, std::byte* p) {
    const VU low = hn::Or(round<kFormat>(v.a), hn::ShiftLeft<8>(round<kFormat>(v.b)));
    const VU high = hn::Or(round<kFormat>(v.c), hn::ShiftLeft<8>(round<kFormat>(v.d)));
    kernels::HWY_NAMESPACE::store(hn::Or(low, hn::ShiftLeft<16>(high)), DU(), p);
  }
  static HWY_INLINE void store_wide(Vectors v, std::byte* p) { store_interleaved(v, D(), p); }
};

// f16 with the conversions of x86-64-v3 and up. They are exact, include subnormals, round to nearest even and
// map the canonical NaN to the canonical NaN (Intel SDM, VCVTPH2PS and VCVTPS2PH with rounding control 0;
// MXCSR's flush bits do not apply to f16 results). Vector a holds the lower half of the elements.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
struct HardwareF16 {
  using D = DF;
  using DH = hn::Rebind<hwy::float16_t, D>;
  template <class V>
  using Pack = Two<V>;
  using Vectors = Two<VF>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kElements = 2 * kLanes;
  static constexpr size_t kBytes = 2;
  static constexpr size_t kWideBytes = 4;
  static HWY_INLINE Vectors load(const std::byte* p) {
    return {hn::PromoteTo(D(), kernels::HWY_NAMESPACE::load(DH(), p)),
            hn::PromoteTo(D(), kernels::HWY_NAMESPACE::load(DH(), p + kLanes * kBytes))};
  }
  static HWY_INLINE Vectors load_wide(const std::byte* p) {
    return {kernels::HWY_NAMESPACE::load(D(), p), kernels::HWY_NAMESPACE::load(D(), p + kLanes * kWideBytes)};
  }
  static HWY_INLINE void store(Vectors v, std::byte* p) {
    kernels::HWY_NAMESPACE::store(hn::DemoteTo(DH(), v.a), DH(), p);
    kernels::HWY_NAMESPACE::store(hn::DemoteTo(DH(), v.b), DH(), p + kLanes * kBytes);
  }
  static HWY_INLINE void store_wide(Vectors v, std::byte* p) {
    kernels::HWY_NAMESPACE::store(v.a, D(), p);
    kernels::HWY_NAMESPACE::store(v.b, D(), p + kLanes * kWideBytes);
  }
};

// fp8 widened through f16, whose upper byte is e5m2. The four vectors are in memory order. Narrowing cannot
// go through f16, since that would round twice.
template <const FloatFormat& kFormat>
struct HardwareSmall8 {
  using D = DF;
  using D16 = hn::ScalableTag<int16_t>;
  using DH = hn::Rebind<hwy::float16_t, D>;
  template <class V>
  using Pack = Four<V>;
  using Vectors = Four<VF>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kElements = 4 * kLanes;
  static constexpr size_t kBytes = 1;
  static constexpr size_t kWideBytes = 4;

  // One f16 pattern per byte: the value for e5m2, the value / 256 for e4m3.
  static HWY_INLINE hn::Vec<D16> half_patterns(const std::byte* p) {
    const D16 d;
    const auto extended = hn::PromoteTo(d, kernels::HWY_NAMESPACE::load(hn::Rebind<int8_t, D16>(), p));
    if constexpr (kFormat.mantissa_bits == kE5m2Format.mantissa_bits) {
      return hn::ShiftLeft<8>(extended);
    } else {
      // Sign, one spare exponent bit, four exponent bits, three mantissa bits. Adding one carries into the
      // spare bit only for a NaN (all ones), and a pattern with that bit set is an f16 NaN.
      const auto magnitude = hn::And(hn::ShiftLeft<7>(extended), hn::Set(d, int16_t{0x3f80}));
      const auto spare =
          hn::And(hn::Add(magnitude, hn::Set(d, int16_t{0x0080})), hn::Set(d, int16_t{0x4000}));
      const auto sign = hn::And(extended, hn::Set(d, int16_t{-0x8000}));
      return hn::Or(hn::Or(magnitude, spare), sign);
    }
  }
  template <class V16>
  static HWY_INLINE VF widen_half(V16 patterns) {
    const VF v = hn::PromoteTo(D(), hn::BitCast(DH(), patterns));
    if constexpr (kFormat.mantissa_bits == kE5m2Format.mantissa_bits) {
      return v;
    } else {
      return hn::Mul(v, hn::Set(D(), 256.0F));
    }
  }
  static HWY_INLINE Vectors load(const std::byte* p) {
    const hn::Half<D16> half;
    const auto low = half_patterns(p);
    const auto high = half_patterns(p + 2 * kLanes);
    return {widen_half(hn::LowerHalf(half, low)), widen_half(hn::UpperHalf(half, low)),
            widen_half(hn::LowerHalf(half, high)), widen_half(hn::UpperHalf(half, high))};
  }
  static HWY_INLINE Vectors load_wide(const std::byte* p) {
    return {load_lanes(p, 0), load_lanes(p, 1), load_lanes(p, 2), load_lanes(p, 3)};
  }
  static HWY_INLINE void store(Vectors v, std::byte* p) {
    store_patterns(v.a, p, 0);
    store_patterns(v.b, p, 1);
    store_patterns(v.c, p, 2);
    store_patterns(v.d, p, 3);
  }
  static HWY_INLINE void store_wide(Vectors v, std::byte* p) {
    store_lanes(v.a, p, 0);
    store_lanes(v.b, p, 1);
    store_lanes(v.c, p, 2);
    store_lanes(v.d, p, 3);
  }

 private:
  static HWY_INLINE VF load_lanes(const std::byte* p, size_t i) {
    return kernels::HWY_NAMESPACE::load(D(), p + i * kLanes * kWideBytes);
  }
  static HWY_INLINE void store_lanes(VF v, std::byte* p, size_t i) {
    kernels::HWY_NAMESPACE::store(v, D(), p + i * kLanes * kWideBytes);
  }
  static HWY_INLINE void store_patterns(VF v, std::byte* p, size_t i) {
    kernels::HWY_NAMESPACE::store(hn::U8FromU32(round<kFormat>(v)), hn::Rebind<uint8_t, DU>(),
                                  p + i * kLanes);
  }
};

using F16 = HardwareF16;
using E4m3 = HardwareSmall8<kE4m3Format>;
using E5m2 = HardwareSmall8<kE5m2Format>;
#else
using F16 = Small16<kF16Format>;
using E4m3 = Small8<kE4m3Format>;
using E5m2 = Small8<kE5m2Format>;
#endif
using Bf16 = Small16<kBf16Format>;

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
