// What reducers can gain and what they cost, as formulas: bytes over bandwidth, nothing else. Latency,
// headers and stragglers are left out, so a predicted time is a lower bound. N: worker nodes, as a reducer
// sees them; G: GPUs in each; S: bytes that are reduced; Bw, Br: bandwidth of a worker's and a reducer's NIC,
// each way at once. docs/sizing.md has the derivations.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice::config {

// R = ceil(N Bw / (h Br)), the least number of reducers whose bandwidth, of which a share h is used, is at
// least the workers' (Vertex AI, "Reduce training time with Reduction Server": the pool's total bandwidth
// should match that of the worker pools). At least 1. All arguments are positive.
[[nodiscard]] uint64_t reducers_for(uint64_t workers, double worker_gbps, double reducer_gbps,
                                    double headroom) noexcept;

// R Br / (N Bw): 1 and more cover the workers.
[[nodiscard]] double coverage(uint64_t workers, double worker_gbps, uint64_t reducers,
                              double reducer_gbps) noexcept;

// Bytes that the busiest node's NIC moves each way, as multiples of S.
//
// Through reducers S, times 1 / coverage where the pool is narrower than the workers.
[[nodiscard]] double reducer_traffic(double coverage) noexcept;
// A ring of `members`: 2 (members - 1) / members (nccl-tests, PERFORMANCE.md). Members are nodes in a
// hierarchical ring, GPUs in NCCL's flat one. 0 for one node.
[[nodiscard]] double ring_traffic(uint64_t members) noexcept;
// NCCL's double binary tree: each half of S goes up and down every edge of one of two trees, in which a node
// has up to three edges in one and one in the other. So S at two nodes, 1.5 S at three, 2 S from four on.
[[nodiscard]] double tree_traffic(uint64_t nodes) noexcept;

// Seconds that `traffic` x `bytes` take at `gbps`.
[[nodiscard]] double transfer_seconds(double traffic, uint64_t bytes, double gbps) noexcept;

// The share f of a step that must be communication that nothing hides, so that reducers which cost `extra` of
// what the workers cost pay for themselves: the step shortens to (1 - f) + f / speedup and costs (1 + extra)
// times as much an hour, so f = extra / (1 + extra) / (1 - 1 / speedup). Nothing where that is more than 1,
// or nothing gets faster.
[[nodiscard]] std::optional<double> break_even_share(double extra, double speedup) noexcept;

// Connections that one worker needs to one reducer, so that none has to carry more than `flow_gbps`.
[[nodiscard]] uint64_t flows_for(double pair_gbps, double flow_gbps) noexcept;

// Processors that a reducer keeps busy at `gbps` in and as much out. From docs/benchmarks.md, "On one
// machine": 0.28 s of CPU for each 1e9 bytes received, checksums, sums and answers included, over loopback.
// An assumption on any other machine.
inline constexpr double kReducerCpuSecondsPerGb = 0.28;
[[nodiscard]] double busy_processors(double gbps) noexcept;

}  // namespace sluice::config
