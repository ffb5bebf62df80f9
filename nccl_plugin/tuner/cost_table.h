// Decides which algorithms NCCL may choose for a collective. These are pure functions of data that all ranks
// have, so all ranks decide alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_plugin/host/settings.h"

namespace sluice::nccl::tuner {

// ncclFunc_t
enum Function : int { kBroadcast = 0, kReduce = 1, kAllGather = 2, kReduceScatter = 3, kAllReduce = 4 };
// Rows and columns of NCCL's cost table.
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

struct CollectiveQuery {
  int function = kAllReduce;
  uint64_t bytes = 0;
  size_t nodes = 0;
  size_t ranks = 0;  // 0: as many as nodes
};

// True when the pool is faster than a ring, for reducers as fast as the nodes. Through R reducers an
// allreduce takes max(1, nodes / R) times the time to send its bytes once; a ring of N ranks takes 2 (N - 1)
// / N times (docs/guides/size.md).
[[nodiscard]] bool pool_is_wide_enough(const CollectiveQuery& q, size_t reducers) noexcept;

// OffloadRange is what offload can gain for a communicator. SLUICE_OFFLOAD=auto follows it.
struct OffloadRange {
  bool pays = false;
  uint64_t max_bytes = UINT64_MAX;  // the largest allreduce that gains
  double colocated_share = 0;       // of the data: what co-located reducers sum
};

// Of q, only nodes and ranks matter. Without co-located reducers the pool must be wide enough. With them, the
// time is that of core/link_split.h, for links as fast as the reducers' weights say. Where it is not lower
// than a ring's, offload still gains for a while: it takes two hops and a ring 2 (ranks - 1). Allocates.
[[nodiscard]] OffloadRange offload_range(const CollectiveQuery& q, const Settings& s);

// True when offload is allowed and pays: nodes and bytes reach their minimum, and the bytes are in the range.
// With two nodes a ring is equally fast; below a size the latency of ring and tree is lower.
[[nodiscard]] bool should_offload(const CollectiveQuery& q, const Settings& s,
                                  const OffloadRange& range) noexcept;

// Edits the costs: algorithms x protocols of microseconds, kForbidden for excluded entries, which stay
// excluded. With offload the cheaper CollNet algorithm becomes free. Without offload both CollNet algorithms
// are excluded, and NVLS over several nodes, which uses CollNet too, unless no other algorithm is left.
// `avoid_chain`: CollNetChain would crash (verdict.h), so only CollNetDirect can offload. Returns true when
// CollNet was chosen.
bool adjust_costs(const CollectiveQuery& q, const Settings& s, const OffloadRange& range, float* table,
                  int algorithms, int protocols, bool avoid_chain) noexcept;

// Returns the chunk size of a CollNet allreduce. `proposed` is NCCL's; the result is larger if each channel
// still has kDepth chunks.
[[nodiscard]] size_t chunk_bytes(const CollectiveQuery& q, int algorithm, int channels,
                                 size_t proposed) noexcept;

}  // namespace sluice::nccl::tuner
