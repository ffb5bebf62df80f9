// What the two sides of a bare star must agree on. A worker says it before its first byte, and nothing else
// is ever said: the rest of the connection is payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace sluice::bench {

struct StarShape {
  uint32_t workers = 0;      // connections that each chunk is waited for from
  uint32_t slots = 0;        // chunks that a worker sends ahead of what it has received
  uint64_t chunk_bytes = 0;  // answered when all have sent as much
  friend bool operator==(const StarShape&, const StarShape&) = default;
};

using StarGreeting = std::array<std::byte, 24>;

[[nodiscard]] StarGreeting greeting_of(const StarShape& shape) noexcept;
// kInvalidArgument: not the greeting of a star's worker, or of a star that would take too much memory.
[[nodiscard]] Result<StarShape> shape_of(const StarGreeting& greeting);

// Chunks in flight, as wire::slots_per_lane has it for one lane.
[[nodiscard]] uint32_t star_slots(uint64_t window_bytes, uint64_t chunk_bytes) noexcept;

}  // namespace sluice::bench
