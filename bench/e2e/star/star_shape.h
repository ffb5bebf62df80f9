// Defines the parameters of a bare TCP star and their encoding. A worker sends them as a handshake at the
// start of its connection. The rest of the connection is payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace sluice::bench {

struct StarShape {
  uint32_t workers = 0;      // number of connections
  uint32_t slots = 0;        // chunks that a worker sends ahead of the received bytes
  uint64_t chunk_bytes = 0;  // the server answers when all workers have sent a chunk
  friend bool operator==(const StarShape&, const StarShape&) = default;
};

using StarHandshake = std::array<std::byte, 24>;

[[nodiscard]] StarHandshake encode_handshake(const StarShape& shape) noexcept;
// Errors: kInvalidArgument for a foreign handshake and for a star that needs too much memory.
[[nodiscard]] Result<StarShape> decode_handshake(const StarHandshake& handshake);

// Returns the number of chunks in flight, like wire::slots_per_lane for one lane.
[[nodiscard]] uint32_t star_slots(uint64_t window_bytes, uint64_t chunk_bytes) noexcept;

}  // namespace sluice::bench
