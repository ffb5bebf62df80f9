// A view: which reducers a session uses, and how chunks fall on them. Every rank computes the same from the
// same view; the hash is what they compare. PROTOCOL.md section 8.
#pragma once

#include <cstdint>
#include <vector>

#include "core/units.h"

namespace sluice::wire {

struct ViewReducer {
  uint64_t id = 0;      // from WELCOME
  uint16_t lanes = 1;   // lane connections of each rank to it
  uint16_t weight = 1;  // share of the chunks, relative
  bool alive = true;    // false: removed by a view change; no chunk falls on it
};

struct View {
  uint16_t version = 0;
  std::vector<ViewReducer> reducers;
  uint32_t window_bytes = 0;  // of a rank under way to a reducer, at most
  uint32_t slot_bytes = 0;    // largest chunk
};

// 64-bit hash over every field above, in order (the first 8 bytes of SHA-256 over their little-endian
// encoding).
[[nodiscard]] uint64_t view_hash(const View& view);

// Smallest slot that a session may ask for: a page. With less, what every chunk costs whatever its length (a
// frame, its checks, a place at the reducer) outweighs its bytes.
inline constexpr uint32_t kMinSlotBytes = 4 * kKiB;
// Bytes in flight per rank and reducer, at most: no network needs more, and a reducer holds them for every
// rank.
inline constexpr uint32_t kMaxWindowBytes = 256 * kMiB;

// Slot size where nobody asked for one: what the ranks send at once to one reducer's port, or a rank over its
// lane connections, one chunk each, comes to 128 KiB, which a queue takes and a core's cache too; a power of
// two, at least 16 KiB.
[[nodiscard]] constexpr uint32_t slot_bytes_for(uint32_t ranks, uint32_t lane_connections) noexcept {
  const uint64_t at_once = ranks > lane_connections ? ranks : lane_connections;
  uint32_t bytes = 128 * kKiB;
  while (bytes > 16 * kKiB && bytes * at_once > 128 * kKiB) bytes /= 2;
  return bytes;
}

// W: slots of one lane connection. At least 2, so that a lane can receive while it sends.
[[nodiscard]] constexpr uint32_t slots_per_lane(uint32_t window_bytes, uint32_t slot_bytes,
                                                uint16_t lanes) noexcept {
  const uint32_t w = window_bytes / slot_bytes / lanes;
  return w < 2 ? 2 : w;
}

// Bytes of one chunk of an operation of `op_bytes` over `lane_count` lane connections in all: about two
// chunks a lane, a multiple of 64, at least 16 KiB and at most slot_bytes. For element types whose
// accumulator is more than twice as wide (fp8) at most half of slot_bytes, so that a partial sum never needs
// more than 2 x slot_bytes.
[[nodiscard]] uint32_t chunk_bytes(uint64_t op_bytes, uint32_t lane_count, uint32_t slot_bytes,
                                   bool wide_accumulator) noexcept;

// Slots of one lane connection that `slot` of a frame header can name.
inline constexpr uint32_t kMaxSlots = 0xffff;
// Entries of the placement table: turns of all reducers in one period.
inline constexpr uint32_t kMaxPlacement = 1 << 16;

// Where chunk q goes: an index into the list of lanes (reducer 0 lane 0, reducer 0 lane 1, ..., reducer 1
// lane 0, ...; removed reducers are counted). Period 1/table: chunk q falls on table[q mod table.size()];
// lanes alternate over the reducers that are alive as evenly as weights allow, so any run of consecutive
// chunks is balanced. At least one is alive.
[[nodiscard]] std::vector<uint32_t> placement_table(const View& view);

}  // namespace sluice::wire
