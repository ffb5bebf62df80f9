#include "wire/view.h"

#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "wire/message_codec.h"
#include "wire/sha256.h"

namespace sluice::wire {
namespace {

constexpr uint32_t kMinChunk = 16 * kKiB;
constexpr uint32_t kChunkAlign = 64;
constexpr uint32_t kChunksPerLane = 2;  // one contribution and one result in transit

}  // namespace

uint64_t view_hash(const View& view) {
  BodyWriter w;
  w(view.version), w(static_cast<uint16_t>(view.reducers.size())), w(view.window_bytes), w(view.slot_bytes);
  for (const ViewReducer& r : view.reducers)
    w(r.id), w(r.lanes), w(r.weight), w(static_cast<uint8_t>(r.alive));
  const Digest d = sha256(w.take());
  return load_le<uint64_t>(std::as_bytes(std::span(d)).data());
}

uint32_t chunk_bytes(uint64_t op_bytes, uint32_t lane_count, uint32_t slot_bytes,
                     bool wide_accumulator) noexcept {
  const uint32_t largest = wide_accumulator ? slot_bytes / 2 : slot_bytes;
  const uint64_t wanted = round_up(div_ceil(op_bytes, uint64_t{kChunksPerLane} * lane_count), kChunkAlign);
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, std::min(kMinChunk, largest), largest));
}

std::vector<uint32_t> placement_table(const View& view) {
  // Smooth weighted round robin over reducers. The turns of each reducer cycle through its lanes.
  const size_t count = view.reducers.size();
  std::vector<uint32_t> first_lane(count);
  // Turns of a reducer in one period: its weight times the largest lane count, so that each of its lanes gets
  // a share.
  std::vector<int64_t> share(count, 0);
  uint32_t most_lanes = 0;
  for (const ViewReducer& r : view.reducers)
    if (r.alive) most_lanes = std::max<uint32_t>(most_lanes, r.lanes);
  int64_t turns = 0;
  uint32_t lanes = 0;
  for (size_t i = 0; i < count; ++i) {
    const ViewReducer& r = view.reducers[i];
    first_lane[i] = lanes;
    lanes += r.lanes;
    if (r.alive) share[i] = int64_t{r.weight} * most_lanes;
    turns += share[i];
  }
  SLUICE_ASSERT(turns > 0 && turns <= int64_t{kMaxPlacement});
  std::vector<int64_t> credit(count, 0);
  std::vector<uint32_t> turn(count, 0);
  std::vector<uint32_t> table;
  table.reserve(static_cast<size_t>(turns));
  for (int64_t t = 0; t < turns; ++t) {
    size_t best = count;
    for (size_t i = 0; i < count; ++i) {
      credit[i] += share[i];
      if (share[i] > 0 && (best == count || credit[i] > credit[best])) best = i;
    }
    credit[best] -= turns;
    table.push_back(first_lane[best] + turn[best]++ % view.reducers[best].lanes);
  }
  return table;
}

}  // namespace sluice::wire
