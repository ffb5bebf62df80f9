// Computes the speedup and the cost of reducers from bytes over bandwidth alone. Latency, headers and
// stragglers are ignored, so a predicted time is a lower bound. N: worker nodes, as a reducer sees them;
// G: GPUs per node; S: bytes to reduce; Bw, Br: NIC bandwidth of a worker and a reducer, full duplex.
// docs/guides/size.md derives the formulas.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice::config {

// 800 / (0.1 * 80) must be 100, not 101, in spite of rounding: what differs by this share is equal.
inline constexpr double kRounding = 1e-9;

// Returns R = ceil(N Bw / (h Br)), at least 1: the smallest number of reducers whose bandwidth, used to a
// share h, covers the workers' bandwidth. The rule is Vertex AI's ("Reduce training time with Reduction
// Server": the pool's total bandwidth should match that of the worker pools). All arguments are positive.
[[nodiscard]] uint64_t reducers_for(uint64_t workers, double worker_gbps, double reducer_gbps,
                                    double headroom) noexcept;

// Returns R Br / (N Bw). From 1 on, the reducers cover the workers.
[[nodiscard]] double coverage(uint64_t workers, double worker_gbps, uint64_t reducers,
                              double reducer_gbps) noexcept;

// Time through reducers, in multiples of S / Bw.
struct SplitTime {
  double time = 0;
  double co_located_share = 0;  // share of S that co-located reducers sum
};
// One worker has `slowest` x Bw, at most 1, the others Bw. With `co_located` each worker has a reducer of its
// own (core/link_split.h), and `coverage` may be 0. Without: 1, or 1 / coverage when the pool is narrower
// than the workers.
[[nodiscard]] SplitTime split_time(uint64_t workers, double slowest, double coverage, bool co_located);

// The following functions return the bytes that the busiest node's NIC moves in each direction, in multiples
// of S.
//
// Ring of `members`: 2 (members - 1) / members (nccl-tests, PERFORMANCE.md); 0 for one member. Members are
// nodes in a hierarchical ring and GPUs in NCCL's flat ring.
[[nodiscard]] double ring_traffic(uint64_t members) noexcept;
// NCCL's double binary tree: each half of S moves up and down every edge of one of two trees. A node has up
// to three edges in one tree and one in the other. So the traffic is 1 for two nodes, 1.5 for three, 2 from
// four.
[[nodiscard]] double tree_traffic(uint64_t nodes) noexcept;

// Returns the seconds that `traffic` x `bytes` need at `gbps`.
[[nodiscard]] double transfer_seconds(double traffic, uint64_t bytes, double gbps) noexcept;

// Returns the share f of a step that must be exposed communication so that the reducers pay for themselves.
// `extra` is their cost relative to the workers. The step shortens to (1 - f) + f / speedup and costs
// (1 + extra) times as much per hour, so f = extra / (1 + extra) / (1 - 1 / speedup). Returns nothing when f
// exceeds 1 or there is no speedup.
[[nodiscard]] std::optional<double> break_even_share(double extra, double speedup) noexcept;

// Returns the connections that one worker needs to one reducer so that none carries more than `flow_gbps`.
[[nodiscard]] uint64_t flows_for(double pair_gbps, double flow_gbps) noexcept;

// CPU seconds of a reducer per 1e9 bytes that it receives, with the results that it sends. Measured on one
// machine (docs/results/benchmarks.md, "CPU time of a reducer"; docs/guides/secure.md); an assumption on any
// other machine.
inline constexpr double kReducerCpuSecondsPerGb = 0.68;  // with checksums
inline constexpr double kHealthCpuSecondsPerGb = 0.03;   // --health, in addition
inline constexpr double kTlsCpuSecondsPerGb = 0.9;       // TLS, in addition

// Returns the number of CPUs that a reducer keeps busy when it receives and sends `gbps`.
[[nodiscard]] double busy_processors(double gbps, double cpu_seconds_per_gb) noexcept;

}  // namespace sluice::config
