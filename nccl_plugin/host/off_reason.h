#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::nccl {

// OffReason is why a communicator is not offloaded. Exactly one applies: the first that the user must remove.
// The texts are keys of SLUICE_STATS_FILE, so they must not change.
enum class OffReason : uint8_t {
  kNone,  // offloaded
  kNoReducers,
  kRdmaActive,
  kNoInterface,
  kNcclTooOld,
  kOffloadNever,  // SLUICE_OFFLOAD=never
  kOneNode,
  kTooFewNodes,  // SLUICE_MIN_NODES
  kPoolTooNarrow,
  kChainHeads,  // NcclDefect::kChainHeads
  kRefused,     // the nodes could not join the reducers
  kOtherNet,    // NCCL_NET names another network
  kCollNetNotEnabled,
  kNodeThreshold,      // NCCL_COLLNET_NODE_THRESHOLD
  kAlgorithmExcluded,  // NCCL_ALGO or NCCL_PROTO
  kTooManyGpus,        // per node
  kChild,              // of a communicator with CollNet
  kNoCollNet,          // NCCL has none, for a reason that the plugin cannot see
  kNoAllreduce,        // ended before an allreduce
};

[[nodiscard]] constexpr std::string_view to_string(OffReason reason) noexcept {
  switch (reason) {
    case OffReason::kNone: return "none";
    case OffReason::kNoReducers: return "no_reducers";
    case OffReason::kRdmaActive: return "rdma_active";
    case OffReason::kNoInterface: return "no_interface";
    case OffReason::kNcclTooOld: return "nccl_too_old";
    case OffReason::kOffloadNever: return "offload_never";
    case OffReason::kOneNode: return "one_node";
    case OffReason::kTooFewNodes: return "too_few_nodes";
    case OffReason::kPoolTooNarrow: return "pool_too_narrow";
    case OffReason::kChainHeads: return "chain_heads";
    case OffReason::kRefused: return "refused";
    case OffReason::kOtherNet: return "other_net";
    case OffReason::kCollNetNotEnabled: return "collnet_not_enabled";
    case OffReason::kNodeThreshold: return "node_threshold";
    case OffReason::kAlgorithmExcluded: return "algorithm_excluded";
    case OffReason::kTooManyGpus: return "too_many_gpus";
    case OffReason::kChild: return "child";
    case OffReason::kNoCollNet: return "no_collnet";
    case OffReason::kNoAllreduce: return "no_allreduce";
  }
  return "none";
}

}  // namespace sluice::nccl
