#include "tests/conformance/transport/frames.h"

#include <array>
#include <random>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/units.h"

namespace sluice::transport::test {

namespace {

// All patterns are parts of one pool, because generating random bytes is slow with a sanitizer.
const Bytes& pool() {
  static const Bytes bytes = [] {
    Bytes b(wire::kMaxPayload + kMiB);
    std::mt19937_64 random(1);
    for (size_t i = 0; i < b.size(); i += 8) store_le<uint64_t>(b.data() + i, random());
    return b;
  }();
  return bytes;
}

}  // namespace

Bytes pattern(size_t size, uint64_t seed) {
  const size_t offset = std::mt19937_64(seed * 1'000'003 + size)() % (pool().size() - size);
  const auto cut = std::span(pool()).subspan(offset, size);
  return {cut.begin(), cut.end()};
}

Bytes extension_area(size_t size, uint64_t seed) {
  if (size == 0) return {};
  Bytes area = pattern(size, seed);
  store_le<uint16_t>(area.data(), 0x0777);
  store_le(area.data() + 2, static_cast<uint16_t>(size - 8));
  store_le<uint32_t>(area.data() + 4, 0);
  return area;
}

wire::FrameHeader header_for(std::span<const std::byte> payload, uint64_t sequence, size_t extension_bytes) {
  wire::FrameHeader h;
  h.ext_len8 = static_cast<uint8_t>(extension_bytes / 8);
  h.session = 7;
  h.sequence = sequence;
  h.chunk = sequence * 3;
  h.length = static_cast<uint32_t>(payload.size());
  if (payload.empty()) {
    h.type = wire::FrameType::kHeartbeat;
    return h;
  }
  h.type = wire::FrameType::kContribution;
  h.kind = wire::Kind::kAllreduce;
  h.wire_dtype = wire::DType::kU8;
  h.acc_dtype = wire::accumulator_of(wire::DType::kU8);
  h.result_dtype = wire::DType::kU8;
  h.flags = wire::kFlagPayloadCrc;
  h.payload_crc = crc32c(payload);
  return h;
}

Bytes encode(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload) {
  Bytes bytes(wire::kHeaderBytes);
  wire::encode_header(header, extensions, std::span(bytes).first<wire::kHeaderBytes>());
  bytes.insert(bytes.end(), extensions.begin(), extensions.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

}  // namespace sluice::transport::test
