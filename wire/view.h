// A view: the reducers of a session and the placement of chunks on them (protocol.md section 8). All ranks
// compute the same placement from the same view, and they compare their views by hash.
#pragma once

#include <cstdint>
#include <vector>

#include "core/units.h"

namespace sluice::wire {

struct ViewReducer {
  uint64_t id = 0;      // from WELCOME
  uint16_t lanes = 1;   // lane connections of each rank to this reducer
  uint16_t weight = 1;  // relative share of the chunks
  bool alive = true;    // false: removed by a view change, receives no chunks
};

struct View {
  uint16_t version = 0;
  std::vector<ViewReducer> reducers;
  uint32_t window_bytes = 0;  // maximum bytes in flight from a rank to a reducer
  uint32_t slot_bytes = 0;    // largest chunk
};

// 64-bit hash over every field above, in order (the first 8 bytes of SHA-256 over their little-endian
// encoding).
[[nodiscard]] uint64_t view_hash(const View& view);

// Smallest slot of a session: a page. In a smaller slot the fixed cost of a chunk (frame, checks, reducer
// slot) exceeds the cost of its bytes.
inline constexpr uint32_t kMinSlotBytes = 4 * kKiB;
// Maximum bytes in flight per rank and reducer. No network needs more, and a reducer reserves them for every
// rank.
inline constexpr uint32_t kMaxWindowBytes = 256 * kMiB;

// Default slot size: a power of two, at least 16 KiB. The chunks that arrive at once total 128 KiB, which
// fits a switch queue and the cache of a core. Counted are one chunk of each rank at one reducer, or one
// chunk on each lane connection of a rank, whichever is more.
[[nodiscard]] constexpr uint32_t slot_bytes_for(uint32_t ranks, uint32_t lane_connections) noexcept {
  const uint64_t at_once = ranks > lane_connections ? ranks : lane_connections;
  uint32_t bytes = 128 * kKiB;
  while (bytes > 16 * kKiB && bytes * at_once > 128 * kKiB) bytes /= 2;
  return bytes;
}

// W: the slots of one lane connection. At least 2, so that a lane can receive and send at the same time.
[[nodiscard]] constexpr uint32_t slots_per_lane(uint32_t window_bytes, uint32_t slot_bytes,
                                                uint16_t lanes) noexcept {
  const uint32_t w = window_bytes / slot_bytes / lanes;
  return w < 2 ? 2 : w;
}

// Chunk size of an operation of `op_bytes` over `lane_count` lane connections in total: about two chunks per
// lane, a multiple of 64, at least 16 KiB and at most slot_bytes. For element types whose accumulator is more
// than twice as wide (fp8) at most half of slot_bytes, so that a partial sum never exceeds 2 * slot_bytes.
[[nodiscard]] uint32_t chunk_bytes(uint64_t op_bytes, uint32_t lane_count, uint32_t slot_bytes,
                                   bool wide_accumulator) noexcept;

// Maximum slots of one lane connection: the range of `slot` in a frame header.
inline constexpr uint32_t kMaxSlots = 0xffff;
// Maximum number of entries of a placement table.
inline constexpr uint32_t kMaxPlacement = 1 << 16;

// The placement of chunks on lanes. Chunk q goes to lane table[q mod table.size()]. Lanes are numbered in
// view order (reducer 0 lane 0, reducer 0 lane 1, ..., reducer 1 lane 0, ...), removed reducers included.
// Lanes alternate over the live reducers as evenly as the weights allow, so any run of consecutive chunks is
// balanced. At least one reducer must be alive.
[[nodiscard]] std::vector<uint32_t> placement_table(const View& view);

}  // namespace sluice::wire
