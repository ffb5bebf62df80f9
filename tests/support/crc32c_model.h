// CRC-32C bit by bit, straight from its definition (RFC 3720 appendix B.4): slow, and independent of
// core/crc32c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::test {

inline uint32_t crc32c_model(std::span<const std::byte> data, uint32_t crc = 0) {
  crc = ~crc;
  for (const std::byte b : data) {
    crc ^= std::to_integer<uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
  }
  return ~crc;
}

}  // namespace sluice::test
