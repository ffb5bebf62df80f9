// What the other end must know of a queue pair to be joined with it, as it goes over the TCP connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace sluice::transport::rdma {

struct PairAddress {
  uint32_t number = 0;    // of the queue pair, 24 bits
  uint32_t sequence = 0;  // of its first packet, 24 bits
  uint8_t mtu = 0;        // as ibv_mtu: 1 (256 bytes) to 5 (4096)
  uint32_t segment_bytes = 0;
  uint32_t segments = 0;  // receives that are posted for data: the first credits of the peer
  std::array<uint8_t, 16> gid{};
  friend bool operator==(const PairAddress&, const PairAddress&) = default;
};

inline constexpr size_t kPairAddressBytes = 40;

void encode(const PairAddress& address, std::span<std::byte, kPairAddressBytes> out) noexcept;
// kBadMagic, kBadVersion, or kBadField where a number is out of its range.
[[nodiscard]] Result<PairAddress> decode_pair_address(std::span<const std::byte, kPairAddressBytes> in);

}  // namespace sluice::transport::rdma
