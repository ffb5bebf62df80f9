// Struct View lists the reducers of a session and decides the placement of chunks on them (protocol.md
// section 8). All ranks compute the same placement from the same view, and they compare their views by hash.
// Pure functions: thread-safe, no errors; whoever builds a view from a peer's bytes checks them first.
#pragma once

#include <cstdint>
#include <vector>

#include "core/units.h"
#include "wire/message_limits.h"

namespace sluice::wire {

// Rates that a network link can have, in bits/s: 10 kbit/s to 100 Tbit/s. A peer's rate outside must be
// refused, because placement divides by it.
inline constexpr uint64_t kMinLinkRate = 10'000;
inline constexpr uint64_t kMaxLinkRate = 100'000'000'000'000;
[[nodiscard]] constexpr bool is_link_rate(uint64_t rate) noexcept {
  return rate >= kMinLinkRate && rate <= kMaxLinkRate;
}

struct ViewReducer {
  uint64_t id = 0;      // from WELCOME
  uint16_t lanes = 1;   // lane connections of each rank to this reducer
  uint16_t weight = 1;  // relative share of the chunks in a view without worker_rates
  bool alive = true;    // false: removed by a view change, receives no chunks
  // For a view with worker_rates. Bits/s in each direction of a dedicated reducer; 0: unknown, which counts
  // as the slowest worker's rate. A co-located reducer has its host's rate, whatever this field says.
  uint64_t rate = 0;
  uint32_t host_rank = kNoRank;  // the rank in whose process a co-located reducer runs
};

struct View {
  uint16_t version = 0;
  std::vector<ViewReducer> reducers;
  uint32_t window_bytes = 0;  // maximum bytes in flight from a rank to a reducer
  uint32_t slot_bytes = 0;    // largest chunk
  // Bits/s in each direction of each rank's link. Empty: no rank has a co-located reducer, and rate and
  // host_rank of the reducers are ignored.
  std::vector<uint64_t> worker_rates{};
};

// 64-bit hash over the fields (the first 8 bytes of SHA-256 over their encoding in protocol.md section 8).
// Rates enter it only when worker_rates is not empty, so that a view without them has the hash of releases
// without co-located reducers.
[[nodiscard]] uint64_t view_hash(const View& view);

// Smallest slot of a session: a page. In a smaller slot the fixed cost of a chunk (frame, checks, reducer
// slot) exceeds the cost of its bytes.
inline constexpr uint32_t kMinSlotBytes = 4 * kKiB;
// Maximum bytes in flight per rank and reducer. No network needs more, and a reducer reserves them for every
// rank.
inline constexpr uint32_t kMaxWindowBytes = 256 * kMiB;

inline constexpr uint32_t kBytesAtOnce = 128 * kKiB;

// Default slot size: a power of two, at least 16 KiB. The chunks that arrive at once total kBytesAtOnce,
// which fits a switch queue and the cache of a core. Counted are one chunk of each rank at one reducer, or
// one chunk on each lane connection of a rank, whichever is more. Of several rails on the same links each
// counts, and slots are at least `least_of_rails`.
[[nodiscard]] constexpr uint32_t slot_bytes_for(uint32_t ranks, uint32_t lane_connections, uint32_t rails = 1,
                                                uint32_t least_of_rails = 8 * kKiB) noexcept {
  const uint64_t at_once = uint64_t{rails} * (ranks > lane_connections ? ranks : lane_connections);
  const uint32_t least = rails > 1 ? least_of_rails : 16 * kKiB;
  uint32_t bytes = kBytesAtOnce;
  while (bytes > least && bytes * at_once > kBytesAtOnce) bytes /= 2;
  return bytes;
}

// W: the slots of one lane connection. At least 2, so that a lane can receive and send at the same time.
[[nodiscard]] constexpr uint32_t slots_per_lane(uint32_t window_bytes, uint32_t slot_bytes,
                                                uint16_t lanes) noexcept {
  const uint32_t w = window_bytes / slot_bytes / lanes;
  return w < 2 ? 2 : w;
}

// Default slot size of a session with this view. With link rates: as many bytes as let two chunks on each of
// a rank's connections, contributions and results, pass the slowest worker's link in 10 ms, which the queue
// of a switch port holds; a power of two, at least slot_bytes_for() and at most 64 KiB.
[[nodiscard]] uint32_t default_slot_bytes(const View& view, uint32_t ranks, uint32_t rails = 1) noexcept;

// Bounds of the chunk size of a session.
struct ChunkSizes {
  uint32_t smallest = 16 * kKiB;
  uint32_t usual = ~uint32_t{0};  // exceeded only by operations with many chunks
  uint32_t slot_bytes = 0;        // maximum
};

// With link rates, the smallest size is the bytes that the slowest worker's link carries in 50 us, from 1 to
// 16 KiB, so that a small operation uses all reducers where that is faster. The usual size is
// slot_bytes_for(); without link rates it is not limited.
[[nodiscard]] ChunkSizes chunk_sizes(const View& view) noexcept;

// Chunk size of an operation of `op_bytes` over `lane_count` lane connections in total: about two chunks per
// lane, or about 128 if they are larger than the usual size then; a multiple of 64. For element types whose
// accumulator is more than twice as wide (fp8, blocks) at most half of the slot, so that a partial sum never
// exceeds 2 * slot_bytes. Of a block type a whole number of blocks.
[[nodiscard]] uint32_t chunk_bytes(uint64_t op_bytes, uint32_t lane_count, const ChunkSizes& sizes,
                                   DType dtype) noexcept;

// Maximum slots of one lane connection: the range of `slot` in a frame header.
inline constexpr uint32_t kMaxSlots = 0xffff;
// Maximum number of entries of a placement table.
inline constexpr uint32_t kMaxPlacement = 1 << 16;

// The share of the chunks that each reducer of the view is to sum; all add up to 1, a removed reducer has 0.
// Without worker_rates by weight. With worker_rates by core/link_split.h over the live reducers, so that each
// view change computes the best split of what is left. A live reducer whose share is 0 is on standby.
[[nodiscard]] std::vector<double> reducer_shares(const View& view);

// The placement of chunks on lanes. Chunk q goes to lane table[q mod table.size()]. Lanes are numbered in
// view order (reducer 0 lane 0, reducer 0 lane 1, ..., reducer 1 lane 0, ...), removed reducers included.
// Lanes alternate over the live reducers as evenly as their shares allow (with worker_rates: wire/placement.h
// says how evenly), and a reducer's turns cycle through its lanes. At least one reducer must be alive, each
// worker rate an is_link_rate(), each host_rank of a co-located reducer a rank of its own.
[[nodiscard]] std::vector<uint32_t> placement_table(const View& view);

}  // namespace sluice::wire
