#include "nccl_plugin/tuner/cost_table.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/link_split.h"
#include "core/units.h"

namespace sluice::nccl::tuner {
namespace {

constexpr size_t kDepth = 8;                  // steps that NCCL keeps in flight
constexpr size_t kLargestChunk = 512 * kKiB;  // NCCL's slot; NCCL splits larger chunks

// An allreduce with co-located reducers took 6 to 11 % longer than the links allow. A ring comes closer.
constexpr double kColocatedOverhead = 1.08;
// Up to this size per node beyond two, the hops that offload saves are longer than kColocatedOverhead, with
// 30 us per hop at 10 Gbit/s.
constexpr uint64_t kEqualBytesPerNode = kMiB / 2;

bool uses_collnet(int algorithm, const CollectiveQuery& q) noexcept {
  return algorithm == kCollNetDirect || algorithm == kCollNetChain || (algorithm == kNvls && q.nodes > 1);
}

// For 1 unit of data over links that carry 1 unit per time.
double ring_time(size_t ranks) noexcept {
  return 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

}  // namespace

bool pool_is_wide_enough(const CollectiveQuery& q, size_t reducers) noexcept {
  const size_t ranks = q.ranks != 0 ? q.ranks : q.nodes;
  if (ranks < 2 || reducers == 0) return false;
  const double pool_time = std::max(1.0, static_cast<double>(q.nodes) / static_cast<double>(reducers));
  return pool_time < ring_time(ranks);
}

OffloadRange offload_range(const CollectiveQuery& q, const Settings& s) {
  const size_t ranks = q.ranks != 0 ? q.ranks : q.nodes;
  if (q.nodes < 2 || ranks < 2 || !s.may_colocate(q.nodes))
    return {.pays = pool_is_wide_enough(q, s.pool_size())};
  // Equal links: every node of the job must come to the same result, and a node knows its own link only.
  LinkRates rates{.workers = std::vector<double>(q.nodes, 1.0),
                  .can_reduce = std::vector<bool>(q.nodes, true)};
  for (const config::Endpoint& reducer : s.reducers) rates.reducers.push_back(reducer.weight);
  rates.reducers.resize(s.pool_size(), 1.0);  // reducers that DNS names later
  const LinkSplit split = split_links(rates);
  const double share = std::accumulate(split.worker_shares.begin(), split.worker_shares.end(), 0.0);
  if (share == 0) return {.pays = pool_is_wide_enough(q, s.pool_size())};
  if (kColocatedOverhead * split.time < ring_time(ranks)) return {.pays = true, .colocated_share = share};
  const uint64_t most = kEqualBytesPerNode * (q.nodes - 2);
  constexpr double kRounding = 1 + 1e-9;
  return {.pays = split.time <= ring_time(ranks) * kRounding && most >= s.min_bytes,
          .max_bytes = most,
          .colocated_share = share};
}

bool should_offload(const CollectiveQuery& q, const Settings& s, const OffloadRange& range) noexcept {
  if (q.function != kAllReduce || !s.can_offload()) return false;
  switch (s.offload) {
    case OffloadPolicy::kNever: return false;
    case OffloadPolicy::kAlways: return true;
    case OffloadPolicy::kAuto:
      return q.nodes >= s.min_nodes && q.bytes >= s.min_bytes && q.bytes <= range.max_bytes && range.pays;
  }
  return false;
}

bool adjust_costs(const CollectiveQuery& q, const Settings& s, const OffloadRange& range, float* table,
                  int algorithms, int protocols, bool avoid_chain) noexcept {
  if (protocols <= kSimple || algorithms <= kCollNetChain) return false;
  const auto row = [&](int algorithm) {
    return std::span(table + algorithm * protocols, static_cast<size_t>(protocols));
  };
  const auto is_possible = [&](int algorithm) {
    return std::ranges::any_of(row(algorithm), [](float c) { return c >= 0; });
  };
  float& direct = row(kCollNetDirect)[kSimple];
  float& chain = row(kCollNetChain)[kSimple];
  const bool offload = should_offload(q, s, range);
  if (offload && avoid_chain && direct >= 0) {
    direct = 0;
    std::ranges::fill(row(kCollNetChain), kForbidden);
    return true;
  }
  if (offload && !avoid_chain) {
    if (direct < 0 && chain < 0) return false;  // this communicator has no CollNet
    (chain < 0 || (direct >= 0 && direct < chain) ? direct : chain) = 0;
    return true;
  }
  if (q.function != kAllReduce && q.function != kAllGather && q.function != kReduceScatter) return false;
  bool has_other = false;
  for (int a = 0; a < algorithms; ++a) has_other |= !uses_collnet(a, q) && is_possible(a);
  if (!has_other) return false;
  for (int a = 0; a < algorithms; ++a) {
    if (uses_collnet(a, q)) std::ranges::fill(row(a), kForbidden);
  }
  return false;
}

size_t chunk_bytes(const CollectiveQuery& q, int algorithm, int channels, size_t proposed) noexcept {
  if (q.function != kAllReduce || channels < 1 || (algorithm != kCollNetDirect && algorithm != kCollNetChain))
    return proposed;
  const uint64_t per_channel = q.bytes / static_cast<uint64_t>(channels);
  size_t chunk = proposed;
  while (chunk < kLargestChunk && per_channel / (chunk * 2) >= kDepth) chunk *= 2;
  return std::min(chunk, std::max(proposed, kLargestChunk));
}

}  // namespace sluice::nccl::tuner
