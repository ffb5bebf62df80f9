// CRC-32C with the crc32 instruction of SSE4.2. The instruction processes 8 bytes with a latency of three
// cycles, and one can start in each cycle. So long inputs are split into three interleaved streams, which a
// carry-less multiplication combines.
#include "core/crc32c/impl.h"

#if SLUICE_CRC32C_X86

#include <nmmintrin.h>
#include <wmmintrin.h>

#include "core/bytes.h"

namespace sluice::crc32c_impl {
namespace {

#define SLUICE_TARGET_SSE42 __attribute__((target("sse4.2,pclmul")))

// Returns the state after `bytes` zero bytes. The exponent is reduced by 33: crc32(0, v) contributes x^32,
// and the product of two reflected 32-bit values, read as a reflected 64-bit value, contributes an extra
// factor x.
template <size_t bytes>
SLUICE_TARGET_SSE42 uint32_t advance(uint32_t state) noexcept {
  static_assert(bytes * 8 > 33);
  constexpr uint32_t kFactor = x_to_the(bytes * 8 - 33);
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(state)),
                                               _mm_cvtsi32_si128(static_cast<int>(kFactor)), 0x00);
  return static_cast<uint32_t>(_mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
}

// Processes the input in groups of three streams of `bytes` each, as long as a whole group remains.
template <size_t bytes>
SLUICE_TARGET_SSE42 uint32_t process_triples(const std::byte*& data, size_t& size, uint32_t state) noexcept {
  static_assert(bytes % 8 == 0);
  for (; size >= 3 * bytes; data += 3 * bytes, size -= 3 * bytes) {
    uint64_t a = state;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < bytes; i += 8) {
      a = _mm_crc32_u64(a, load_le<uint64_t>(data + i));
      b = _mm_crc32_u64(b, load_le<uint64_t>(data + bytes + i));
      c = _mm_crc32_u64(c, load_le<uint64_t>(data + 2 * bytes + i));
    }
    state = advance<2 * bytes>(static_cast<uint32_t>(a)) ^ advance<bytes>(static_cast<uint32_t>(b)) ^
            static_cast<uint32_t>(c);
  }
  return state;
}

}  // namespace

bool has_sse42() noexcept {
  __builtin_cpu_init();  // a static initializer may run before the one of libgcc
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

SLUICE_TARGET_SSE42 uint32_t sse42(const std::byte* data, size_t size, uint32_t crc) noexcept {
  // Large groups combine cheaply; small groups leave little input for the single stream at the end.
  uint32_t state = process_triples<2048>(data, size, ~crc);
  state = process_triples<256>(data, size, state);
  state = process_triples<64>(data, size, state);
  uint64_t wide = state;
  for (; size >= 8; data += 8, size -= 8) wide = _mm_crc32_u64(wide, load_le<uint64_t>(data));
  state = static_cast<uint32_t>(wide);
  if (size >= 4) {  // the CRC of a frame header covers 60 bytes
    state = _mm_crc32_u32(state, load_le<uint32_t>(data));
    data += 4;
    size -= 4;
  }
  for (; size != 0; ++data, --size) state = _mm_crc32_u8(state, std::to_integer<uint8_t>(*data));
  return ~state;
}

}  // namespace sluice::crc32c_impl

#endif
