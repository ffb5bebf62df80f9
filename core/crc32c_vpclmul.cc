// Folding by carry-less multiplication, four 64-byte accumulators of four 128-bit lanes each (the method of
// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009, on
// 512-bit registers).
//
// A lane holds a polynomial X = L x^64 + H, L its low 64 bits (reflected, so they are the higher powers). To
// move it D bits ahead it is replaced by something congruent to X x^D mod P that fits the lane: L (x^(D+64)
// mod P) + H (x^D mod P). The product of two reflected 64-bit values read as a reflected 128-bit one has a
// factor x too many, so the exponents below are one less.
#include "core/crc32c_impl.h"

#if SLUICE_CRC32C_X86

#include <immintrin.h>

namespace sluice::crc32c_impl {
namespace {

#define SLUICE_TARGET_VPCLMUL __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,sse4.2")))

struct FoldFactors {
  uint64_t low;
  uint64_t high;
};

constexpr FoldFactors fold_factors(uint64_t bits) noexcept {
  return {uint64_t{x_to_the(bits + 63)} << 32, uint64_t{x_to_the(bits - 1)} << 32};
}

// Factors of the four lanes of one accumulator, in the order they stand in memory.
struct alignas(64) LaneFactors {
  FoldFactors lane[4];
};

constexpr LaneFactors same_for_all(uint64_t bits) noexcept {
  const FoldFactors f = fold_factors(bits);
  return {{f, f, f, f}};
}

constexpr size_t kStride = 256;  // bytes per turn of the main loop
constexpr LaneFactors kBy256 = same_for_all(8 * 256);
constexpr LaneFactors kBy192 = same_for_all(8 * 192);
constexpr LaneFactors kBy128 = same_for_all(8 * 128);
constexpr LaneFactors kBy64 = same_for_all(8 * 64);
// Brings the first three lanes to the place of the fourth, which is added as it is.
constexpr LaneFactors kToLastLane = {{fold_factors(384), fold_factors(256), fold_factors(128), {0, 0}}};

// Below this the set-up and the reduction at the end cost more than they gain.
constexpr size_t kSmallest = 256;

SLUICE_TARGET_VPCLMUL inline __m512i load(const void* p) noexcept {
  return _mm512_loadu_si512(p);
}

SLUICE_TARGET_VPCLMUL inline __m512i xor3(__m512i a, __m512i b, __m512i c) noexcept {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

// `x` moved ahead by the distance of `factors`, plus `next`.
SLUICE_TARGET_VPCLMUL inline __m512i fold(__m512i x, __m512i factors, __m512i next) noexcept {
  return xor3(_mm512_clmulepi64_epi128(x, factors, 0x00), _mm512_clmulepi64_epi128(x, factors, 0x11), next);
}

// The masked form because g++-12 warns about its own header in the plain one.
template <int index>
SLUICE_TARGET_VPCLMUL inline __m128i lane(__m512i x) noexcept {
  return _mm512_maskz_extracti32x4_epi32(0xF, x, index);
}

// The state that the 64 bytes of `x` leave behind.
SLUICE_TARGET_VPCLMUL inline uint32_t reduce(__m512i x) noexcept {
  const __m512i moved = fold(x, load(&kToLastLane), _mm512_setzero_si512());
  const __m128i sum =
      _mm_xor_si128(_mm_xor_si128(lane<0>(moved), lane<1>(moved)), _mm_xor_si128(lane<2>(moved), lane<3>(x)));
  const uint64_t state = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(sum)));
  return static_cast<uint32_t>(_mm_crc32_u64(state, static_cast<uint64_t>(_mm_extract_epi64(sum, 1))));
}

}  // namespace

bool has_vpclmul() noexcept {
  __builtin_cpu_init();  // a static initialiser may get here before libgcc's own
  return has_sse42() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
}

SLUICE_TARGET_VPCLMUL uint32_t vpclmul(const std::byte* data, size_t size, uint32_t crc) noexcept {
  if (size < kSmallest) return sse42(data, size, crc);

  // The state so far is the same as four bytes added in front.
  __m512i a = _mm512_xor_si512(load(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  __m512i b = load(data + 64);
  __m512i c = load(data + 128);
  __m512i d = load(data + 192);
  data += kStride;
  size -= kStride;
  const __m512i by256 = load(&kBy256);
  for (; size >= kStride; data += kStride, size -= kStride) {
    a = fold(a, by256, load(data));
    b = fold(b, by256, load(data + 64));
    c = fold(c, by256, load(data + 128));
    d = fold(d, by256, load(data + 192));
  }
  d = fold(a, load(&kBy192), fold(b, load(&kBy128), fold(c, load(&kBy64), d)));
  for (; size >= 64; data += 64, size -= 64) d = fold(d, load(&kBy64), load(data));
  return sse42(data, size, ~reduce(d));
}

}  // namespace sluice::crc32c_impl

#endif
