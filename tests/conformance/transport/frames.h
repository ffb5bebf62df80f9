// Valid frames for tests, with recognizable payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/frame.h"

namespace sluice::transport::test {

using Bytes = std::vector<std::byte>;

// Pseudo-random bytes, determined by size and seed.
[[nodiscard]] Bytes pattern(size_t size, uint64_t seed);

// One extension of an unknown, optional type that fills `size` bytes (0 or a multiple of 8).
[[nodiscard]] Bytes extension_area(size_t size, uint64_t seed);

// The header of a CONTRIBUTION with payload CRC, or of a HEARTBEAT if the payload is empty.
[[nodiscard]] wire::FrameHeader header_for(std::span<const std::byte> payload, uint64_t sequence,
                                           size_t extension_bytes = 0);

// The bytes of a frame on a stream.
[[nodiscard]] Bytes encode(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                           std::span<const std::byte> payload);

}  // namespace sluice::transport::test
