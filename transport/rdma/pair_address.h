#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace sluice::transport::rdma {

// The address of an RDMA port: an IPv6 address, or an IPv4 address in its IPv6-mapped form.
using Gid = std::array<uint8_t, 16>;

// PairAddress is the data that a peer needs to connect its queue pair to the local one. It is sent over TCP.
struct PairAddress {
  uint32_t number = 0;    // of the queue pair, 24 bits
  uint32_t sequence = 0;  // of the first packet, 24 bits
  uint8_t mtu = 0;        // as ibv_mtu: 1 (256 bytes) to 5 (4096)
  uint32_t segment_bytes = 0;
  uint32_t segments = 0;  // receives posted for data: the initial credits of the peer
  Gid gid{};
  friend bool operator==(const PairAddress&, const PairAddress&) = default;
};

inline constexpr size_t kPairAddressBytes = 40;

void encode(const PairAddress& address, std::span<std::byte, kPairAddressBytes> out) noexcept;
// kBadMagic, kBadVersion, or kBadField when a number is out of range.
[[nodiscard]] Result<PairAddress> decode_pair_address(std::span<const std::byte, kPairAddressBytes> in);

}  // namespace sluice::transport::rdma
