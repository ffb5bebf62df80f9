// CRC-32C with tables (slicing by 8), for every CPU. Entry [k][b] is the effect of byte b on the state when k
// more bytes follow it in the group of eight.
#include <array>

#include "core/bytes.h"
#include "core/crc32c/impl.h"

namespace sluice::crc32c_impl {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t state = b;
    for (int bit = 0; bit < 8; ++bit) state = times_x(state);
    t[0][b] = state;
  }
  for (size_t k = 1; k < t.size(); ++k) {
    for (size_t b = 0; b < 256; ++b) t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 0xFF];
  }
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t table(const std::byte* data, size_t size, uint32_t crc) noexcept {
  uint32_t state = ~crc;
  for (; size >= 8; data += 8, size -= 8) {
    const uint64_t v = load_le<uint64_t>(data) ^ state;
    state = 0;
    for (unsigned i = 0; i < 8; ++i) state ^= kTables[7 - i][(v >> (8 * i)) & 0xFF];
  }
  for (; size != 0; ++data, --size)
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<uint32_t>(*data)) & 0xFF];
  return ~state;
}

}  // namespace sluice::crc32c_impl
