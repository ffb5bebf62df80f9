// Loads and stores vectors at any alignment. Compiled once per target: Highway's toggle replaces #pragma
// once.
#include "reducer/kernels/targets.h"
//
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#if defined(SLUICE_REDUCER_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_VECTORS_INL_H_
#undef SLUICE_REDUCER_KERNELS_VECTORS_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_VECTORS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Highway's scalar target accesses memory through T*, which must not be misaligned.
#if HWY_TARGET == HWY_SCALAR
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::byte* p) {
  hn::TFromD<D> lane;
  std::memcpy(&lane, p, sizeof lane);
  return hn::Set(d, lane);
}
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D, std::byte* p) {
  const hn::TFromD<D> lane = hn::GetLane(v);
  std::memcpy(p, &lane, sizeof lane);
}
#else
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::byte* p) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), reinterpret_cast<const uint8_t*>(p)));
}
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D, std::byte* p) {
  const hn::Repartition<uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<uint8_t*>(p));
}
#endif

// The vectors of one step of a fold. They are members, since array elements may not stay in registers.
template <class V>
struct One {
  V a;
};
template <class V>
struct Two {
  V a, b;
};
template <class V>
struct Four {
  V a, b, c, d;
};

// Element i of memory is lane i / k of vector i % k, k = 2 or 4.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void load_interleaved(D d, const std::byte* p, Two<hn::Vec<D>>& v) {
#if HWY_TARGET == HWY_SCALAR
  v.a = load(d, p);
  v.b = load(d, p + sizeof(T));
#else
  hn::LoadInterleaved2(d, reinterpret_cast<const T*>(p), v.a, v.b);
#endif
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void load_interleaved(D d, const std::byte* p, Four<hn::Vec<D>>& v) {
#if HWY_TARGET == HWY_SCALAR
  v.a = load(d, p);
  v.b = load(d, p + sizeof(T));
  v.c = load(d, p + 2 * sizeof(T));
  v.d = load(d, p + 3 * sizeof(T));
#else
  hn::LoadInterleaved4(d, reinterpret_cast<const T*>(p), v.a, v.b, v.c, v.d);
#endif
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_interleaved(Two<hn::Vec<D>> v, D d, std::byte* p) {
#if HWY_TARGET == HWY_SCALAR
  store(v.a, d, p);
  store(v.b, d, p + sizeof(T));
#else
  hn::StoreInterleaved2(v.a, v.b, d, reinterpret_cast<T*>(p));
#endif
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_interleaved(Four<hn::Vec<D>> v, D d, std::byte* p) {
#if HWY_TARGET == HWY_SCALAR
  store(v.a, d, p);
  store(v.b, d, p + sizeof(T));
  store(v.c, d, p + 2 * sizeof(T));
  store(v.d, d, p + 3 * sizeof(T));
#else
  hn::StoreInterleaved4(v.a, v.b, v.c, v.d, d, reinterpret_cast<T*>(p));
#endif
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
