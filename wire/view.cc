#include "wire/view.h"

#include <algorithm>
#include <limits>

#include "core/assert.h"
#include "core/bytes.h"
#include "wire/sha256.h"

namespace sluice::wire {
namespace {

constexpr uint32_t kMinChunk = 16 * kKiB;
constexpr uint32_t kChunkAlign = 64;
constexpr uint32_t kChunksPerLane = 2;  // one on the way up while one is on the way down
constexpr size_t kMaxTable = 1 << 16;

template <typename T>
void append(std::vector<std::byte>& out, T v) {
  const size_t at = out.size();
  out.resize(at + sizeof v);
  store_le(out.data() + at, v);
}

// One step of splitmix64: a fixed, well-mixed 64-bit function that a second implementation can copy from
// PROTOCOL.md section 8.
uint64_t mix(uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t view_hash(const View& view) {
  std::vector<std::byte> bytes;
  append(bytes, view.version);
  append(bytes, static_cast<uint16_t>(view.reducers.size()));
  append(bytes, view.window_bytes);
  append(bytes, view.slot_bytes);
  for (const ViewReducer& r : view.reducers) {
    append(bytes, r.id);
    append(bytes, r.lanes);
    append(bytes, r.weight);
    append(bytes, static_cast<uint8_t>(r.alive));
  }
  const Digest d = sha256(bytes);
  return load_le<uint64_t>(std::as_bytes(std::span(d)).data());
}

uint32_t chunk_bytes(uint64_t op_bytes, uint32_t lane_count, uint32_t slot_bytes,
                     bool wide_accumulator) noexcept {
  const uint32_t largest = wide_accumulator ? slot_bytes / 2 : slot_bytes;
  const uint64_t wanted = round_up(div_ceil(op_bytes, uint64_t{kChunksPerLane} * lane_count), kChunkAlign);
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, std::min(kMinChunk, largest), largest));
}

std::vector<uint32_t> placement_table(const View& view) {
  SLUICE_ASSERT(!view.reducers.empty());
  // Smooth weighted round robin over reducers; each reducer's own turns go round its lanes.
  const size_t count = view.reducers.size();
  std::vector<uint32_t> first_lane(count);
  // A reducer's turns in one period: its weight times the largest lane count, so that every lane of it gets
  // its share.
  uint32_t most_lanes = 0;
  for (const ViewReducer& r : view.reducers) most_lanes = std::max<uint32_t>(most_lanes, r.lanes);
  uint64_t turns = 0;
  uint32_t lanes = 0;
  for (size_t i = 0; i < count; ++i) {
    first_lane[i] = lanes;
    lanes += view.reducers[i].lanes;
    turns += uint64_t{view.reducers[i].weight} * most_lanes;
  }
  SLUICE_ASSERT(turns > 0 && turns <= kMaxTable);
  std::vector<int64_t> credit(count, 0);
  std::vector<uint32_t> turn(count, 0);
  std::vector<uint32_t> table;
  table.reserve(turns);
  for (uint64_t t = 0; t < turns; ++t) {
    size_t best = 0;
    for (size_t i = 0; i < count; ++i) {
      credit[i] += int64_t{view.reducers[i].weight} * most_lanes;
      if (credit[i] > credit[best]) best = i;
    }
    credit[best] -= static_cast<int64_t>(turns);
    table.push_back(first_lane[best] + turn[best]++ % view.reducers[best].lanes);
  }
  // Entries of removed reducers: the survivor with the highest hash of (entry, id) takes each.
  for (uint64_t t = 0; t < turns; ++t) {
    const auto owner =
        static_cast<size_t>(std::ranges::upper_bound(first_lane, table[t]) - first_lane.begin() - 1);
    if (view.reducers[owner].alive) continue;
    size_t heir = count;
    uint64_t highest = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t score = mix(mix(t) ^ view.reducers[i].id);
      if (view.reducers[i].alive && (heir == count || score > highest)) heir = i, highest = score;
    }
    SLUICE_ASSERT(heir < count);
    table[t] = first_lane[heir] + static_cast<uint32_t>(t % view.reducers[heir].lanes);
  }
  return table;
}

}  // namespace sluice::wire
