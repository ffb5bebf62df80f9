#include "nccl_plugin/tuner/pricing.h"

#include <algorithm>
#include <span>

#include "core/units.h"

namespace sluice::nccl::tuner {
namespace {

constexpr size_t kDepth = 8;                  // NCCL's steps in flight
constexpr size_t kLargestChunk = 512 * kKiB;  // NCCL's slot; it cuts what is larger

bool goes_through_collnet(int algorithm, const Question& q) noexcept {
  return algorithm == kCollNetDirect || algorithm == kCollNetChain || (algorithm == kNvls && q.nodes > 1);
}

}  // namespace

bool pool_is_wide_enough(const Question& q, size_t reducers) noexcept {
  const size_t ranks = q.ranks != 0 ? q.ranks : q.nodes;
  if (ranks < 2 || reducers == 0) return false;
  const double ring = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  const double pool = std::max(1.0, static_cast<double>(q.nodes) / static_cast<double>(reducers));
  return pool < ring;
}

bool wants_offload(const Question& q, const Settings& s) noexcept {
  if (q.function != kAllReduce || s.pool_size() == 0) return false;
  switch (s.offload) {
    case OffloadPolicy::kNever: return false;
    case OffloadPolicy::kAlways: return true;
    case OffloadPolicy::kAuto:
      return q.nodes >= s.min_nodes && q.bytes >= s.min_bytes && pool_is_wide_enough(q, s.pool_size());
  }
  return false;
}

bool price(const Question& q, const Settings& s, float* table, int algorithms, int protocols) noexcept {
  if (protocols <= kSimple || algorithms <= kCollNetChain) return false;
  const auto row = [&](int algorithm) {
    return std::span(table + algorithm * protocols, static_cast<size_t>(protocols));
  };
  const auto is_left = [&](int algorithm) {
    return std::ranges::any_of(row(algorithm), [](float c) { return c >= 0; });
  };
  if (wants_offload(q, s)) {
    float& direct = row(kCollNetDirect)[kSimple];
    float& chain = row(kCollNetChain)[kSimple];
    if (direct < 0 && chain < 0) return false;  // this communicator has no CollNet
    (chain < 0 || (direct >= 0 && direct < chain) ? direct : chain) = 0;
    return true;
  }
  if (q.function != kAllReduce && q.function != kAllGather && q.function != kReduceScatter) return false;
  bool others = false;
  for (int a = 0; a < algorithms; ++a) others |= !goes_through_collnet(a, q) && is_left(a);
  if (!others) return false;
  for (int a = 0; a < algorithms; ++a) {
    if (goes_through_collnet(a, q)) std::ranges::fill(row(a), kForbidden);
  }
  return false;
}

size_t chunk_bytes(const Question& q, int algorithm, int channels, size_t wanted) noexcept {
  if (q.function != kAllReduce || channels < 1 || (algorithm != kCollNetDirect && algorithm != kCollNetChain))
    return wanted;
  const uint64_t per_channel = q.bytes / static_cast<uint64_t>(channels);
  size_t chunk = wanted;
  while (chunk < kLargestChunk && per_channel / (chunk * 2) >= kDepth) chunk *= 2;
  return std::min(chunk, std::max(wanted, kLargestChunk));
}

}  // namespace sluice::nccl::tuner
