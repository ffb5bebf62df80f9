#include "nccl_plugin/tuner/cost_table.h"

#include <algorithm>
#include <span>

#include "core/units.h"

namespace sluice::nccl::tuner {
namespace {

constexpr size_t kDepth = 8;                  // steps that NCCL keeps in flight
constexpr size_t kLargestChunk = 512 * kKiB;  // NCCL's slot; NCCL splits larger chunks

bool uses_collnet(int algorithm, const CollectiveQuery& q) noexcept {
  return algorithm == kCollNetDirect || algorithm == kCollNetChain || (algorithm == kNvls && q.nodes > 1);
}

}  // namespace

bool pool_is_wide_enough(const CollectiveQuery& q, size_t reducers) noexcept {
  const size_t ranks = q.ranks != 0 ? q.ranks : q.nodes;
  if (ranks < 2 || reducers == 0) return false;
  const double ring_time = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  const double pool_time = std::max(1.0, static_cast<double>(q.nodes) / static_cast<double>(reducers));
  return pool_time < ring_time;
}

bool should_offload(const CollectiveQuery& q, const Settings& s) noexcept {
  if (q.function != kAllReduce || s.pool_size() == 0) return false;
  switch (s.offload) {
    case OffloadPolicy::kNever: return false;
    case OffloadPolicy::kAlways: return true;
    case OffloadPolicy::kAuto:
      return q.nodes >= s.min_nodes && q.bytes >= s.min_bytes && pool_is_wide_enough(q, s.pool_size());
  }
  return false;
}

bool adjust_costs(const CollectiveQuery& q, const Settings& s, float* table, int algorithms, int protocols,
                  bool avoid_chain) noexcept {
  if (protocols <= kSimple || algorithms <= kCollNetChain) return false;
  const auto row = [&](int algorithm) {
    return std::span(table + algorithm * protocols, static_cast<size_t>(protocols));
  };
  const auto is_possible = [&](int algorithm) {
    return std::ranges::any_of(row(algorithm), [](float c) { return c >= 0; });
  };
  float& direct = row(kCollNetDirect)[kSimple];
  float& chain = row(kCollNetChain)[kSimple];
  if (should_offload(q, s) && avoid_chain && direct >= 0) {
    direct = 0;
    std::ranges::fill(row(kCollNetChain), kForbidden);
    return true;
  }
  if (should_offload(q, s) && !avoid_chain) {
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
