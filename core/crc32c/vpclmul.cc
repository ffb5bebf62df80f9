// CRC-32C by folding with carry-less multiplication: the method of Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009, on 512-bit registers. There are four 64-byte
// accumulators of four 128-bit lanes each.
//
// A lane holds a polynomial X = L x^64 + H, where L is its low 64 bits (reflected, so L has the higher
// powers). To move it D bits ahead, X is replaced by a value that is congruent to X x^D mod P and fits the
// lane: L (x^(D+64) mod P) + H (x^D mod P). The product of two reflected 64-bit values, read as a reflected
// 128-bit value, has an extra factor x, so the exponents below are one less.
#include "core/crc32c/impl.h"

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

// Factors of the four lanes of one accumulator, in memory order.
struct alignas(64) LaneFactors {
  FoldFactors lane[4];
};

constexpr LaneFactors same_for_all(uint64_t bits) noexcept {
  const FoldFactors f = fold_factors(bits);
  return {{f, f, f, f}};
}

constexpr size_t kStride = 256;  // bytes per iteration of the main loop
constexpr LaneFactors kBy256 = same_for_all(8 * 256);
constexpr LaneFactors kBy192 = same_for_all(8 * 192);
constexpr LaneFactors kBy128 = same_for_all(8 * 128);
constexpr LaneFactors kBy64 = same_for_all(8 * 64);
// Moves the first three lanes to the position of the fourth, which is added unchanged.
constexpr LaneFactors kToLastLane = {{fold_factors(384), fold_factors(256), fold_factors(128), {0, 0}}};

// For smaller inputs, setup and final reduction cost more than the fast loop saves.
constexpr size_t kSmallest = 256;

SLUICE_TARGET_VPCLMUL inline __m512i load(const void* p) noexcept {
  return _mm512_loadu_si512(p);
}

SLUICE_TARGET_VPCLMUL inline __m512i xor3(__m512i a, __m512i b, __m512i c) noexcept {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

// Moves `x` ahead by the distance of `factors` and adds `next`.
SLUICE_TARGET_VPCLMUL inline __m512i fold(__m512i x, __m512i factors, __m512i next) noexcept {
  return xor3(_mm512_clmulepi64_epi128(x, factors, 0x00), _mm512_clmulepi64_epi128(x, factors, 0x11), next);
}

// Uses the masked form, because g++-12 warns about its own header with the plain form.
template <int index>
SLUICE_TARGET_VPCLMUL inline __m128i lane(__m512i x) noexcept {
  return _mm512_maskz_extracti32x4_epi32(0xF, x, index);
}

// The CRC state after the 64 bytes of `x`.
SLUICE_TARGET_VPCLMUL inline uint32_t reduce(__m512i x) noexcept {
  const __m512i moved = fold(x, load(&kToLastLane), _mm512_setzero_si512());
  const __m128i sum =
      _mm_xor_si128(_mm_xor_si128(lane<0>(moved), lane<1>(moved)), _mm_xor_si128(lane<2>(moved), lane<3>(x)));
  const uint64_t state = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(sum)));
  return static_cast<uint32_t>(_mm_crc32_u64(state, static_cast<uint64_t>(_mm_extract_epi64(sum, 1))));
}

}  // namespace

bool has_vpclmul() noexcept {
  __builtin_cpu_init();  // a static initializer may run before the one of libgcc
  return has_sse42() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
}

SLUICE_TARGET_VPCLMUL uint32_t vpclmul(const std::byte* data, size_t size, uint32_t crc) noexcept {
  if (size < kSmallest) return sse42(data, size, crc);

  // The current state is equivalent to an XOR into the first four bytes.
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
