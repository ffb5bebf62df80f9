// Frames for tests: headers that pass every check, payload that can be recognised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/frame.h"

namespace sluice::transport::test {

using Bytes = std::vector<std::byte>;

// Looks random; the same for the same (size, seed).
[[nodiscard]] Bytes pattern(size_t size, uint64_t seed);

// One extension of an unknown, optional type that fills `size` bytes (0, or a multiple of 8 from 8 on).
[[nodiscard]] Bytes extension_area(size_t size, uint64_t seed);

// A CONTRIBUTION of bytes (or, with an empty payload, a HEARTBEAT), numbered `sequence`, with payload CRC.
[[nodiscard]] wire::FrameHeader header_for(std::span<const std::byte> payload, uint64_t sequence,
                                           size_t extension_bytes = 0);

// What a peer would put on the stream.
[[nodiscard]] Bytes encode(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                           std::span<const std::byte> payload);

}  // namespace sluice::transport::test
