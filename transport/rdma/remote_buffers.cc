#include "transport/rdma/remote_buffers.h"

#include <algorithm>

namespace sluice::transport::rdma {
namespace {

constexpr uint16_t kInPlaceOnly = 1;

}  // namespace

void encode(const AdvertisedBuffer& buffer, std::span<std::byte, kAdvertisedBufferBytes> out) noexcept {
  std::ranges::fill(out, std::byte{0});
  std::byte* const p = out.data();
  store_le<uint64_t>(p, buffer.address);
  store_le<uint64_t>(p + 8, buffer.frame.sequence);
  store_le<uint32_t>(p + 16, buffer.key);
  store_le<uint32_t>(p + 20, buffer.capacity);
  store_le<uint16_t>(p + 24, buffer.frame.view_version);
  store_le<uint16_t>(p + 26, buffer.in_place_only ? kInPlaceOnly : uint16_t{0});
}

AdvertisedBuffer decode_advertised_buffer(std::span<const std::byte, kAdvertisedBufferBytes> in) noexcept {
  const std::byte* const p = in.data();
  return {.frame = {.view_version = load_le<uint16_t>(p + 24), .sequence = load_le<uint64_t>(p + 8)},
          .address = load_le<uint64_t>(p),
          .key = load_le<uint32_t>(p + 16),
          .capacity = load_le<uint32_t>(p + 20),
          .in_place_only = (load_le<uint16_t>(p + 26) & kInPlaceOnly) != 0};
}

}  // namespace sluice::transport::rdma
