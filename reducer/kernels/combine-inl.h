// The operations of a fold. An operation is a struct over a Highway tag D with these members:
//   V                  vector type of the accumulator
//   to_accumulator(v)  converts a source's lanes to accumulator lanes
//   combine(a, b)      combines two accumulators, in the order of the sources
//   to_result(v, s)    converts the last accumulator to result lanes; s holds the divisor for avg
// Compiled once per target.
#include "reducer/kernels/targets.h"
//
#include <cstdint>

#include "hwy/highway.h"
#include "reducer/kernels/float_format.h"
#include "reducer/kernels/vectors-inl.h"

#if defined(SLUICE_REDUCER_KERNELS_COMBINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_COMBINE_INL_H_
#undef SLUICE_REDUCER_KERNELS_COMBINE_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_COMBINE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

template <class D>
HWY_INLINE hn::Vec<D> canonical(D d, hn::Vec<D> v) {
  using Bits = hn::RebindToUnsigned<D>;
  constexpr auto kNan =
      static_cast<hn::TFromD<Bits>>(sizeof(hn::TFromD<D>) == 4 ? kF32Format.nan : kF64Format.nan);
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(Bits(), kNan)), v);
}

template <class D>
struct FloatSum {
  using V = hn::Vec<D>;
  static HWY_INLINE V to_accumulator(V v) { return v; }
  static HWY_INLINE V combine(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE V to_result(V v, V) { return canonical(D(), v); }
};

template <class D>
struct FloatAvg : FloatSum<D> {
  using V = hn::Vec<D>;
  static HWY_INLINE V to_result(V v, V divisor) { return canonical(D(), hn::Div(v, divisor)); }
};

template <class D>
struct FloatProd : FloatSum<D> {
  using V = hn::Vec<D>;
  static HWY_INLINE V combine(V a, V b) { return hn::Mul(a, b); }
};

// D has unsigned lanes; signed arithmetic wraps to the same bits.
template <class D>
struct IntegerSum {
  using V = hn::Vec<D>;
  static HWY_INLINE V to_accumulator(V v) { return v; }
  static HWY_INLINE V combine(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE V to_result(V v, V) { return v; }
};

template <class D>
struct IntegerProd : IntegerSum<D> {
  using V = hn::Vec<D>;
  static HWY_INLINE V combine(V a, V b) {
#if HWY_TARGET != HWY_SCALAR
    // No instruction set multiplies 8-bit lanes: even and odd bytes are multiplied as 16-bit lanes.
    if constexpr (sizeof(hn::TFromD<D>) == 1) {
      const D d;
      const hn::Repartition<uint16_t, D> wide;
      const auto even = hn::Mul(hn::BitCast(wide, a), hn::BitCast(wide, b));
      const auto odd =
          hn::Mul(hn::ShiftRight<8>(hn::BitCast(wide, a)), hn::ShiftRight<8>(hn::BitCast(wide, b)));
      return hn::BitCast(d, hn::Or(hn::And(even, hn::Set(wide, uint16_t{0xff})), hn::ShiftLeft<8>(odd)));
    } else {
      return hn::Mul(a, b);
    }
#else
    return hn::Mul(a, b);
#endif
  }
};

template <class D>
struct IntegerMin : IntegerSum<D> {
  using V = hn::Vec<D>;
  static HWY_INLINE V combine(V a, V b) { return hn::Min(a, b); }
};

template <class D>
struct IntegerMax : IntegerSum<D> {
  using V = hn::Vec<D>;
  static HWY_INLINE V combine(V a, V b) { return hn::Max(a, b); }
};

// Computes min and max of floats on signed integer keys.
//
// Flipping the magnitude bits of negative patterns makes integer order equal to float order: -0 is just below
// +0, and a NaN is beyond the infinity of its sign. Adding the number of positive NaNs to every key,
// wrapping, moves the NaNs of both signs to the end where they never win: the top for min, the bottom for
// max.
//
// D has lanes, integer or float, that hold patterns of kFormat. kWire: the result is written in kFormat, so
// the format's overflow rule applies to an infinity.
template <class D, const FloatFormat& kFormat, bool kMin, bool kWire>
struct FloatOrder {
  using DS = hn::RebindToSigned<hn::RebindToUnsigned<D>>;
  using DB = hn::RebindToUnsigned<D>;
  using S = hn::TFromD<DS>;
  using B = hn::TFromD<DB>;
  using V = hn::Vec<DS>;
  static_assert(sizeof(S) * 8 == kFormat.bits);

  static constexpr B kMagnitude = static_cast<B>(kFormat.magnitude_mask());
  static constexpr B kNans = static_cast<B>(kFormat.magnitude_mask() - kFormat.largest);
  static constexpr B kMove = kMin ? static_cast<B>(0 - kNans) : kNans;

  static HWY_INLINE V flip(V v) {
    const DS ds;
    return hn::Xor(v, hn::And(hn::BroadcastSignBit(v), hn::Set(ds, static_cast<S>(kMagnitude))));
  }
  static HWY_INLINE V move(V v, B by) {
    return hn::BitCast(DS(), hn::Add(hn::BitCast(DB(), v), hn::Set(DB(), by)));
  }
  static HWY_INLINE V to_accumulator(hn::Vec<D> v) { return move(flip(hn::BitCast(DS(), v)), kMove); }
  static HWY_INLINE V combine(V a, V b) {
    if constexpr (kMin) {
      return hn::Min(a, b);
    } else {
      return hn::Max(a, b);
    }
  }
  static HWY_INLINE hn::Vec<D> to_result(V v, hn::Vec<D>) {
    const DS ds;
    // Keys of numbers lie within [-largest - 1, largest] before the move.
    constexpr auto kLast = static_cast<S>(static_cast<B>(kFormat.largest) + kMove);
    constexpr auto kFirst = static_cast<S>(static_cast<B>(~static_cast<B>(kFormat.largest)) + kMove);
    const auto is_nan = kMin ? hn::Gt(v, hn::Set(ds, kLast)) : hn::Lt(v, hn::Set(ds, kFirst));
    V pattern = flip(move(v, static_cast<B>(0 - kMove)));
    if constexpr (kWire && kFormat.overflow != kFormat.largest) {
      const V magnitude = hn::And(pattern, hn::Set(ds, static_cast<S>(kMagnitude)));
      const V limited = hn::Min(magnitude, hn::Set(ds, static_cast<S>(kFormat.overflow)));
      pattern = hn::Or(limited, hn::AndNot(hn::Set(ds, static_cast<S>(kMagnitude)), pattern));
    }
    return hn::BitCast(D(), hn::IfThenElse(is_nan, hn::Set(ds, static_cast<S>(kFormat.nan)), pattern));
  }
};

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
