#include "transport/rdma/pair_address.h"

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/units.h"

namespace sluice::transport::rdma {
namespace {

// Layout, little endian: magic u16, version u8, mtu u8, number u32, sequence u32, segment bytes u32,
// segments u16, u16 of 0, gid 16 bytes, u32 of 0.
constexpr uint16_t kMagic = 0x5152;  // "RQ"
// Also the version of the protocol on the queue pair. Version 2 added advertised buffers.
constexpr uint8_t kVersion = 2;
constexpr uint32_t kNumberMask = 0xffffff;

}  // namespace

void encode(const PairAddress& address, std::span<std::byte, kPairAddressBytes> out) noexcept {
  std::ranges::fill(out, std::byte{0});
  std::byte* const p = out.data();
  store_le<uint16_t>(p, kMagic);
  p[2] = std::byte{kVersion};
  p[3] = std::byte{address.mtu};
  store_le<uint32_t>(p + 4, address.number);
  store_le<uint32_t>(p + 8, address.sequence);
  store_le<uint32_t>(p + 12, address.segment_bytes);
  store_le<uint16_t>(p + 16, static_cast<uint16_t>(address.segments));
  std::memcpy(p + 20, address.gid.data(), address.gid.size());
}

Result<PairAddress> decode_pair_address(std::span<const std::byte, kPairAddressBytes> in) {
  const std::byte* const p = in.data();
  if (load_le<uint16_t>(p) != kMagic)
    return fail(Errc::kBadMagic, "not a queue pair address: wrong magic number");
  if (p[2] != std::byte{kVersion})
    return fail(Errc::kBadVersion, "queue pair address has version " +
                                       std::to_string(static_cast<int>(p[2])) + ", expected " +
                                       std::to_string(kVersion));
  PairAddress a;
  a.mtu = static_cast<uint8_t>(p[3]);
  a.number = load_le<uint32_t>(p + 4);
  a.sequence = load_le<uint32_t>(p + 8);
  a.segment_bytes = load_le<uint32_t>(p + 12);
  a.segments = load_le<uint16_t>(p + 16);
  std::memcpy(a.gid.data(), p + 20, a.gid.size());
  const bool in_range = a.mtu >= 1 && a.mtu <= 5 && a.number <= kNumberMask && a.sequence <= kNumberMask &&
                        a.segments >= 2 && a.segment_bytes >= 256 && a.segment_bytes <= kMiB;
  if (!in_range) return fail(Errc::kBadField, "queue pair address has a field out of range");
  return a;
}

}  // namespace sluice::transport::rdma
