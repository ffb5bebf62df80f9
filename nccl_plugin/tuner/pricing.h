// Which algorithms NCCL may choose for a collective, given what it thinks they cost. Pure functions of what
// every rank knows alike, so the answer is the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_plugin/host/settings.h"

namespace sluice::nccl::tuner {

// ncclFunc_t
enum Function : int { kBroadcast = 0, kReduce = 1, kAllGather = 2, kReduceScatter = 3, kAllReduce = 4 };
// Rows and columns of the cost table.
enum Algorithm : int {
  kTree = 0,
  kRing = 1,
  kCollNetDirect = 2,
  kCollNetChain = 3,
  kNvls = 4,
  kNvlsTree = 5
};
enum Protocol : int { kLL = 0, kLL128 = 1, kSimple = 2 };
inline constexpr float kForbidden = -1.0f;

struct Question {
  int function = kAllReduce;
  uint64_t bytes = 0;
  size_t nodes = 0;
  size_t ranks = 0;  // 0: as many as nodes
};

// Reducers as fast as the nodes: through R of them each node needs nodes / R times its bytes' time where that
// is more than once, around a ring of N ranks 2 (N - 1) / N times (docs/gain.md). False: the ring is the
// faster one.
[[nodiscard]] bool pool_is_wide_enough(const Question& q, size_t reducers) noexcept;

// Offload wins: at n nodes a ring moves 2(n-1)/n of what goes through the reducers, nothing is gained at two,
// and below a size the ring's and the tree's latency is the lower one.
[[nodiscard]] bool wants_offload(const Question& q, const Settings& s) noexcept;

// table: algorithms x protocols of microseconds, kForbidden where NCCL rules it out; these stay so. Where
// offload wins the cheaper of the two CollNet algorithms is made free; elsewhere both, and NVLS over several
// nodes (which would go through CollNet too), are ruled out unless nothing else would be left. Returns
// whether CollNet was chosen.
bool price(const Question& q, const Settings& s, float* table, int algorithms, int protocols) noexcept;

// Bytes of a chunk of a CollNet allreduce, given what NCCL wants: larger ones while at least kDepth of them
// fill each channel.
[[nodiscard]] size_t chunk_bytes(const Question& q, int algorithm, int channels, size_t wanted) noexcept;

}  // namespace sluice::nccl::tuner
