// Sizes a pool of reducers for a number of workers, for `sluice plan`. docs/guides/size.md explains the
// numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/sizing/pool_steps.h"
#include "config/sizing/vm_catalog.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::config {

// Limits of make_plan(), to reject typing errors. Rates are in 1e9 bit/s, prices in USD per hour.
inline constexpr uint64_t kMaxWorkers = 65536;
inline constexpr uint64_t kMaxPlannedReducers = 1'000'000;
inline constexpr uint64_t kMaxGpusPerNode = 1024;
inline constexpr uint64_t kMaxRanksPerHost = 64;  // that share a host's memory in one session
inline constexpr uint64_t kMaxCommunicators = 4096;
inline constexpr double kMaxGbps = 1e6;
inline constexpr double kMaxUsd = 1e6;
inline constexpr double kMinHeadroom = 0.05;
inline constexpr double kMinSlowWorker = 1e-3;
inline constexpr uint64_t kMaxMessage = uint64_t{1} << 50;

// A user's description of the workers or the reducers. Missing values come from the table.
struct VmRequest {
  std::string type = {};
  std::optional<double> gbps = {};
  std::optional<double> usd_per_hour = {};
};

// CPU architectures to choose reducer types from. Types of unknown architecture count as x86-64.
enum class ArchFilter : uint8_t { kAny, kX86, kArm64 };

struct PlanRequest {
  uint64_t workers = 0;
  VmRequest worker = {};
  uint64_t gpus_per_node = 0;          // 0: from the table for the worker type, otherwise 1
  uint64_t ranks_per_host = 0;         // that reduce outside NCCL, behind the node's card; 0: NCCL only
  VmRequest reducer = {};              // without type and gbps: the best type of the provider
  uint64_t reducers = 0;               // 0: as many as cover the workers
  std::string provider = {};           // empty: the provider of the types
  ArchFilter arch = ArchFilter::kX86;  // of the reducers, when no type is named
  bool tier1 = false;
  double headroom = 1.0;
  double flow_gbps = 0;         // 0: the provider's known limit
  double reducer_cpu_gbps = 0;  // limit of a reducer's CPUs, when lower than its NIC; 0: no limit
  uint64_t message_bytes = 256 * kMiB;
  uint64_t communicators = 4;  // communicators that share the pool at a time, for --memory-limit
  double slow_worker = 1;      // bandwidth of the slowest worker, as a share of the others'
  double exposed = 0.3;        // share of a step that is exposed communication with a ring
  bool pool_alone = false;     // predict without co-located reducers in the workers
  bool ethernet = false;       // the workers' Ethernet, although NCCL would use an RDMA network of theirs
  bool tls = false;            // count the CPU time of TLS
  bool health = false;         // count the CPU time of the reducers' --health
};

enum class Verdict : uint8_t {
  kPays,             // at the exposed share of the request
  kGainCostUnknown,  // faster; a price is missing
  kDoesNotPay,       // faster, but the cost exceeds the saving
  kNoGain,           // not faster than NCCL alone
  kOverLimit,        // more reducers or workers than a session supports
};

// Returns "pays", "gain_cost_unknown", "does_not_pay", "no_gain" or "over_limit".
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

// A reducer type and the pool that it would need.
struct Candidate {
  VmType vm;
  uint64_t count = 0;
  double coverage = 0;
  std::optional<double> usd_per_hour;  // of all reducers
  std::optional<double> extra;         // share of the workers' cost
  std::optional<double> break_even;    // empty: unknown or never
};

// Seconds of one allreduce of message_bytes, from bandwidth alone.
struct PlanTimes {
  double reducers = 0;
  double ring_of_nodes = 0;
  double flat_ring = 0;
  double tree = 0;
};

struct Plan {
  PlanRequest request;
  VmType worker;   // type empty: the user gave only a bandwidth
  VmType reducer;  // gbps: bandwidth of the NIC
  uint64_t gpus_per_node = 1;
  Candidate chosen;
  std::vector<Candidate> candidates;  // when the user named no reducer: all candidates, by cost
  double usable_gbps = 0;             // of a reducer: its NIC, or reducer_cpu_gbps
  Verdict verdict = Verdict::kNoGain;
  // The time of each algorithm divided by the time through reducers.
  double speedup = 0;  // over a ring of nodes; decides the verdict
  double speedup_flat_ring = 0;
  double speedup_tree = 0;
  PlanTimes times;
  double co_located_share = 0;  // of the data, summed by reducers in the workers
  PoolSteps pool_sizes;         // without steps for pool_alone and for one worker
  std::optional<double> workers_usd_per_hour;
  double pair_gbps = 0;  // between one worker and one reducer
  double flow_gbps = 0;  // 0: no limit known
  std::string flow_cap_source;
  uint64_t flows_per_pair = 1;
  uint64_t lanes_per_session = 2;
  uint64_t session_bytes = 0;  // of one head of one communicator, at each reducer
  uint64_t max_heads = 1;      // of NCCL, or the rails of PlanRequest::ranks_per_host if these are more
  uint64_t memory_limit = 0;   // for communicators x max_heads, rounded up to GiB
  uint64_t resident_bytes = 0;
  double cpu_seconds_per_gb = 0;      // of a reducer, per 1e9 bytes received
  double busy_processors = 0;         // of each reducer
  std::vector<std::string> warnings;  // conditions that can invalidate the plan
  std::vector<std::string> notes;     // sources and assumptions
};

// `today` is in days since 1970 (calendar_day.h); values older than a year cause a warning. Returns
// kInvalidArgument with the option that is missing or out of range.
[[nodiscard]] Result<Plan> make_plan(const PlanRequest& request, const VmCatalog& catalog, int64_t today);

// Returns the result as one sentence: "25 x n1-highcpu-16 cover 8 x 100 Gbps: ...".
[[nodiscard]] std::string verdict_sentence(const Plan& plan);

}  // namespace sluice::config
