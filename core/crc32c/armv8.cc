// CRC-32C with the CRC instructions of ARMv8. An instruction processes 8 bytes with a latency of two or three
// cycles, and one can start in each cycle. So long inputs are split into three interleaved streams. Portable
// polynomial arithmetic combines them, because carry-less multiplication is a separate extension of ARMv8.
#include "core/crc32c/impl.h"

#if SLUICE_CRC32C_ARM

#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "core/bytes.h"

namespace sluice::crc32c_impl {
namespace {

#if defined(__clang__)
#define SLUICE_TARGET_CRC __attribute__((target("crc")))
#else
#define SLUICE_TARGET_CRC __attribute__((target("+crc")))
#endif

// Bytes of one stream: about 512 cycles. Combining three streams costs about 200 cycles.
constexpr size_t kStream = 4096;

SLUICE_TARGET_CRC uint32_t process_arm_triples(const std::byte*& data, size_t& size,
                                               uint32_t state) noexcept {
  constexpr uint32_t kOne = x_to_the(kStream * 8);
  constexpr uint32_t kTwo = x_to_the(2 * kStream * 8);
  for (; size >= 3 * kStream; data += 3 * kStream, size -= 3 * kStream) {
    uint32_t a = state;
    uint32_t b = 0;
    uint32_t c = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      a = __crc32cd(a, load_le<uint64_t>(data + i));
      b = __crc32cd(b, load_le<uint64_t>(data + kStream + i));
      c = __crc32cd(c, load_le<uint64_t>(data + 2 * kStream + i));
    }
    state = times(a, kTwo) ^ times(b, kOne) ^ c;
  }
  return state;
}

}  // namespace

bool has_armv8_crc() noexcept {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

SLUICE_TARGET_CRC uint32_t armv8_crc(const std::byte* data, size_t size, uint32_t crc) noexcept {
  uint32_t state = process_arm_triples(data, size, ~crc);
  for (; size >= 8; data += 8, size -= 8) state = __crc32cd(state, load_le<uint64_t>(data));
  if (size >= 4) {  // the CRC of a frame header covers 60 bytes
    state = __crc32cw(state, load_le<uint32_t>(data));
    data += 4;
    size -= 4;
  }
  for (; size != 0; ++data, --size) state = __crc32cb(state, std::to_integer<uint8_t>(*data));
  return ~state;
}

}  // namespace sluice::crc32c_impl

#endif
