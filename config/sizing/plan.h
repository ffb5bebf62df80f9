// A pool of reducers for a number of workers: what `sluice plan` answers. docs/sizing.md explains each
// figure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/sizing/vm_catalogue.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::config {

// What make_plan() takes at most; more is a slip. Rates in 1e9 bit/s, prices in USD an hour.
inline constexpr uint64_t kMostWorkers = 65536;
inline constexpr uint64_t kMostPlannedReducers = 1'000'000;
inline constexpr uint64_t kMostGpusPerNode = 1024;
inline constexpr uint64_t kMostCommunicators = 4096;
inline constexpr double kMostGbps = 1e6;
inline constexpr double kMostUsd = 1e6;
inline constexpr double kLeastHeadroom = 0.05;
inline constexpr uint64_t kMostMessage = uint64_t{1} << 50;

// What a user says of one side. Figures that are not given come from the table.
struct VmWish {
  std::string type;
  std::optional<double> gbps;
  std::optional<double> usd_per_hour;
};

// Processors of the types to choose among. Those of a type that the table does not say it of count as x86-64.
enum class ArchWish : uint8_t { kAny, kX86, kArm64 };

struct PlanRequest {
  uint64_t workers = 0;
  VmWish worker;
  uint64_t gpus_per_node = 0;      // 0: the table's for the worker's type, else 1
  VmWish reducer;                  // without type and gbps: the best of the provider's
  uint64_t reducers = 0;           // 0: as many as cover the workers
  std::string provider;            // empty: that of the types
  ArchWish arch = ArchWish::kX86;  // of the reducers, where the type is not named
  bool tier1 = false;
  double headroom = 1.0;
  double flow_gbps = 0;         // 0: what is known of the provider
  double reducer_cpu_gbps = 0;  // what its processors can receive and answer, where less than its NIC; 0: not
  uint64_t message_bytes = 256 * kMiB;
  uint64_t communicators = 4;  // that share the pool at a time, for --memory-limit
};

enum class Verdict : uint8_t {
  kPays,             // above break_even_share
  kGainCostUnknown,  // faster; a price is missing
  kDoesNotPay,       // faster, but it costs more than it can save
  kNoGain,           // not faster than what NCCL does alone
};

// "pays", "gain_cost_unknown", "does_not_pay", "no_gain".
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

// One reducer type that was looked at.
struct Candidate {
  VmType vm;
  uint64_t count = 0;
  double coverage = 0;
  std::optional<double> usd_per_hour;  // of all
  std::optional<double> extra;         // share of the workers' cost
  std::optional<double> break_even;    // nothing: unknown or never
};

// Times of one allreduce of message_bytes, in seconds, from bandwidth alone.
struct PlanTimes {
  double reducers = 0;
  double ring_of_nodes = 0;
  double flat_ring = 0;
  double tree = 0;
};

struct Plan {
  PlanRequest request;
  VmType worker;   // type empty: the user gave a bandwidth alone
  VmType reducer;  // gbps: what its NIC carries
  uint64_t gpus_per_node = 1;
  Candidate chosen;
  std::vector<Candidate> candidates;  // where the user named no reducer: all, by cost
  double usable_gbps = 0;             // of a reducer: its NIC, or reducer_cpu_gbps
  Verdict verdict = Verdict::kNoGain;
  // Time of each over the time through reducers.
  double speedup = 0;  // of a ring of nodes: what the verdict goes by
  double speedup_flat_ring = 0;
  double speedup_tree = 0;
  PlanTimes times;
  std::optional<double> workers_usd_per_hour;
  double pair_gbps = 0;  // one worker to one reducer
  double flow_gbps = 0;  // 0: no cap known
  std::string flow_words;
  uint64_t flows_per_pair = 1;
  uint64_t lanes_per_session = 2;
  uint64_t session_bytes = 0;  // of one head of one communicator, at each reducer
  uint64_t most_heads = 1;
  uint64_t memory_limit = 0;  // for communicators x most_heads, rounded up to GiB
  uint64_t resident_bytes = 0;
  double busy_processors = 0;         // of each reducer
  std::vector<std::string> warnings;  // what may make the answer wrong or useless
  std::vector<std::string> notes;     // what it rests on
};

// `today`: days since 1970 (calendar_day.h); figures that are a year older are warned of. kInvalidArgument
// names the option that is missing or out of range.
[[nodiscard]] Result<Plan> make_plan(const PlanRequest& request, const VmCatalogue& catalogue, int64_t today);

// The answer in a sentence: "25 x n1-highcpu-16 cover 8 x 100 Gbps: ...".
[[nodiscard]] std::string verdict_sentence(const Plan& plan);

}  // namespace sluice::config
