#include "wire/view.h"

#include <algorithm>
#include <bit>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/link_split.h"
#include "wire/message_codec.h"
#include "wire/placement.h"
#include "wire/sha256.h"

namespace sluice::wire {
namespace {

constexpr uint32_t kLeastChunk = kKiB;         // a smaller one costs its fixed time on any link
constexpr uint64_t kChunksPerSecond = 20'000;  // of the smallest size on the slowest link: 50 us each
constexpr uint32_t kChunkAlign = 64;
constexpr uint32_t kChunksPerLane = 2;  // one contribution and one result in transit
// With fewer chunks per lane, the time in which the first and the last one travel alone would count.
constexpr uint32_t kManyChunksPerLane = 128;
constexpr uint32_t kLargestSlotByRate = 64 * kKiB;  // larger chunks save no CPU time worth their delay
constexpr uint64_t kQueuesPerSecond = 100;          // a switch port's queue holds about 10 ms

uint16_t most_lanes_of(const View& view) {
  uint16_t most = 0;
  for (const ViewReducer& r : view.reducers)
    if (r.alive) most = std::max(most, r.lanes);
  return most;
}

bool is_co_located(const ViewReducer& r) {
  return r.host_rank != kNoRank;
}

std::vector<double> split_shares(const View& view) {
  LinkRates rates{.workers = {}, .can_reduce = std::vector<bool>(view.worker_rates.size(), false)};
  for (const uint64_t rate : view.worker_rates) {
    SLUICE_ASSERT(is_link_rate(rate));
    rates.workers.push_back(static_cast<double>(rate));
  }
  const double slowest = std::ranges::min(rates.workers);
  for (const ViewReducer& r : view.reducers) {
    if (!r.alive) continue;
    if (!is_co_located(r)) {
      SLUICE_ASSERT(r.rate == 0 || is_link_rate(r.rate));
      rates.reducers.push_back(r.rate == 0 ? slowest : static_cast<double>(r.rate));
      continue;
    }
    SLUICE_ASSERT(r.host_rank < rates.can_reduce.size() && !rates.can_reduce[r.host_rank]);
    rates.can_reduce[r.host_rank] = true;
  }
  const LinkSplit split = split_links(rates);
  std::vector<double> shares;
  size_t dedicated = 0;
  for (const ViewReducer& r : view.reducers) {
    if (!r.alive) {
      shares.push_back(0);
    } else {
      shares.push_back(is_co_located(r) ? split.worker_shares[r.host_rank]
                                        : split.reducer_shares[dedicated++]);
    }
  }
  return shares;
}

uint32_t usual_slot_bytes(const View& view, size_t ranks, uint32_t rails = 1) noexcept {
  uint32_t lane_connections = 0;
  for (const ViewReducer& r : view.reducers) lane_connections += r.lanes;
  // With link rates, fast links have larger slots anyway.
  const uint32_t least_of_rails = view.worker_rates.empty() ? 8 * kKiB : kMinSlotBytes;
  return slot_bytes_for(static_cast<uint32_t>(ranks), lane_connections, rails, least_of_rails);
}

// One period of turns of the reducers.
std::vector<uint32_t> turns_of(const View& view) {
  if (!view.worker_rates.empty()) {
    const std::vector<uint32_t> quotas = turn_quotas(split_shares(view), kMaxPlacement);
    std::vector<uint32_t> period = turn_sequence(quotas);
    // As many periods as even out the turns of each lane, where the table has room for them.
    const size_t periods = std::min<size_t>(most_lanes_of(view), kMaxPlacement / period.size());
    std::vector<uint32_t> turns;
    turns.reserve(period.size() * periods);
    for (size_t i = 0; i < periods; ++i) turns.insert(turns.end(), period.begin(), period.end());
    return turns;
  }
  // By weight: a reducer gets its weight times the largest lane count, so that each of its lanes gets a
  // share.
  std::vector<uint32_t> weights;
  for (const ViewReducer& r : view.reducers)
    weights.push_back(r.alive ? uint32_t{r.weight} * most_lanes_of(view) : 0);
  return weighted_round_robin(weights);
}

}  // namespace

uint64_t view_hash(const View& view) {
  BodyWriter w;
  w(view.version), w(static_cast<uint16_t>(view.reducers.size())), w(view.window_bytes), w(view.slot_bytes);
  for (const ViewReducer& r : view.reducers)
    w(r.id), w(r.lanes), w(r.weight), w(static_cast<uint8_t>(r.alive));
  if (!view.worker_rates.empty()) {
    w(static_cast<uint32_t>(view.worker_rates.size()));
    for (const uint64_t rate : view.worker_rates) w(rate);
    for (const ViewReducer& r : view.reducers) w(r.rate), w(r.host_rank);
  }
  const Digest d = sha256(w.take());
  return load_le<uint64_t>(std::as_bytes(std::span(d)).data());
}

uint32_t default_slot_bytes(const View& view, uint32_t ranks, uint32_t rails) noexcept {
  const uint32_t usual = usual_slot_bytes(view, ranks, rails);
  if (view.worker_rates.empty()) return usual;
  const uint64_t others = std::max(ranks, 2U) - 1;
  const uint64_t queue = std::ranges::min(view.worker_rates) / 8 / kQueuesPerSecond;
  const uint64_t fits = std::bit_floor(queue / (2 * kChunksPerLane * others));
  return static_cast<uint32_t>(std::clamp<uint64_t>(fits, usual, std::max(usual, kLargestSlotByRate)));
}

ChunkSizes chunk_sizes(const View& view) noexcept {
  ChunkSizes sizes{.slot_bytes = view.slot_bytes};
  if (view.worker_rates.empty()) return sizes;
  const uint64_t bytes = std::ranges::min(view.worker_rates) / 8 / kChunksPerSecond;
  sizes.smallest =
      static_cast<uint32_t>(std::clamp<uint64_t>(round_up(bytes, kChunkAlign), kLeastChunk, sizes.smallest));
  sizes.usual = usual_slot_bytes(view, view.worker_rates.size());
  return sizes;
}

uint32_t chunk_bytes(uint64_t op_bytes, uint32_t lane_count, const ChunkSizes& sizes, DType dtype) noexcept {
  const bool wide_accumulator = accumulated_size_of(dtype) > 2 * size_of(dtype);
  const uint32_t largest = wide_accumulator ? sizes.slot_bytes / 2 : sizes.slot_bytes;
  const auto with_chunks = [&](uint64_t per_lane) {
    return round_up(div_ceil(op_bytes, per_lane * lane_count), kChunkAlign);
  };
  uint64_t wanted = with_chunks(kChunksPerLane);
  if (wanted > sizes.usual) wanted = std::max<uint64_t>(sizes.usual, with_chunks(kManyChunksPerLane));
  const auto bytes =
      static_cast<uint32_t>(std::clamp<uint64_t>(wanted, std::min(sizes.smallest, largest), largest));
  const auto block = static_cast<uint32_t>(size_of(dtype));
  return is_block(dtype) ? std::max(bytes / block * block, block) : bytes;
}

std::vector<double> reducer_shares(const View& view) {
  if (!view.worker_rates.empty()) return split_shares(view);
  double weights = 0;
  for (const ViewReducer& r : view.reducers)
    if (r.alive) weights += r.weight;
  std::vector<double> shares;
  for (const ViewReducer& r : view.reducers) shares.push_back(r.alive ? r.weight / weights : 0);
  return shares;
}

std::vector<uint32_t> placement_table(const View& view) {
  const size_t count = view.reducers.size();
  std::vector<uint32_t> first_lane;
  uint32_t lanes = 0;
  for (const ViewReducer& r : view.reducers) {
    first_lane.push_back(lanes);
    lanes += r.lanes;
  }
  std::vector<uint32_t> turn(count, 0);
  std::vector<uint32_t> table = turns_of(view);
  for (uint32_t& entry : table) {
    const uint32_t reducer = entry;
    entry = first_lane[reducer] + turn[reducer]++ % view.reducers[reducer].lanes;
  }
  return table;
}

}  // namespace sluice::wire
