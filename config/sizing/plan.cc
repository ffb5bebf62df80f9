#include "config/sizing/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "config/printable_text.h"
#include "config/sizing/csv_table.h"
#include "config/sizing/model.h"
#include "config/sizing/plan_remarks.h"
#include "config/sizing/session_memory.h"
#include "core/units.h"

namespace sluice::config {
namespace {

Result<void> check_range(std::string_view option, double value, double min, double max) {
  if (std::isfinite(value) && value >= min && value <= max) return {};
  return invalid(fmt::format("{} {}: must be {} to {}", option, value, min, max));
}

Result<void> check(const PlanRequest& r) {
  const auto count = [](uint64_t n) { return static_cast<double>(n); };
  // A lower limit for rates keeps every quotient finite.
  constexpr double kMinGbps = 1e-3;
  const std::vector<std::tuple<std::string_view, double, double, double>> ranges = {
      {"--workers", count(r.workers), 1, count(kMaxWorkers)},
      {"--worker-gbps", r.worker.gbps.value_or(1), kMinGbps, kMaxGbps},
      {"--worker-price", r.worker.usd_per_hour.value_or(0), 0, kMaxUsd},
      {"--gpus-per-node", count(r.gpus_per_node), 0, count(kMaxGpusPerNode)},
      {"--ranks-per-host", count(r.ranks_per_host), 0, count(kMaxRanksPerHost)},
      {"--reducer-gbps", r.reducer.gbps.value_or(1), kMinGbps, kMaxGbps},
      {"--reducer-price", r.reducer.usd_per_hour.value_or(0), 0, kMaxUsd},
      {"--reducers", count(r.reducers), 0, count(kMaxPlannedReducers)},
      {"--headroom", r.headroom, kMinHeadroom, 1},
      {"--flow-gbps", r.flow_gbps, 0, kMaxGbps},
      {"--reducer-cpu-gbps", r.reducer_cpu_gbps, 0, kMaxGbps},
      {"--size", count(r.message_bytes), 1, count(kMaxMessage)},
      {"--communicators", count(r.communicators), 1, count(kMaxCommunicators)},
      {"--slow-worker", r.slow_worker, kMinSlowWorker, 1},
      {"--exposed", r.exposed, 0, 1},
  };
  for (const auto& [option, value, min, max] : ranges) {
    SLUICE_RETURN_IF_ERROR(check_range(option, value, min, max));
  }
  for (const auto& [option, rate] :
       {std::pair("--flow-gbps", r.flow_gbps), std::pair("--reducer-cpu-gbps", r.reducer_cpu_gbps)}) {
    if (rate != 0 && rate < kMinGbps)
      return invalid(fmt::format("{} {}: must be 0 or at least {}", option, rate, kMinGbps));
  }
  for (const auto& [option, name] :
       {std::pair("--worker-type", &r.worker.type), std::pair("--reducer-type", &r.reducer.type),
        std::pair("--provider", &r.provider)}) {
    if (!name->empty() && !is_vm_name(*name))
      return invalid(fmt::format("{} {}: expected letters, digits, \".\", \"_\", \"+\" or \"-\"", option,
                                 in_quotes(*name)));
  }
  if (!r.worker.gbps && r.worker.type.empty())
    return invalid("worker bandwidth is not specified; set --worker-type or --worker-gbps");
  return {};
}

// Returns the table's row with the user's values. A type that is not in the table needs a bandwidth.
Result<VmType> resolve(const VmRequest& vm_request, VmRole role, const PlanRequest& request,
                       const VmCatalog& catalog) {
  VmType vm;
  vm.role = role;
  vm.type = vm_request.type;
  vm.provider = request.provider;
  if (!vm_request.type.empty()) {
    const bool ethernet = role == VmRole::kWorker && request.ethernet;
    const auto found = catalog.find(vm_request.type, role, request.provider, request.tier1, ethernet);
    if (found) {
      vm = **found;
    } else if (!vm_request.gbps) {
      const std::string_view option = role == VmRole::kWorker ? "--worker-gbps" : "--reducer-gbps";
      return invalid(found.error().text + " (a type that is not in the table requires " +
                     std::string(option) + ")");
    }
  }
  if (vm_request.gbps && *vm_request.gbps != vm.gbps) {
    vm.gbps = *vm_request.gbps;
    vm.bandwidth_source = "the command line";
    vm.bandwidth_date.clear();
  }
  if (vm_request.usd_per_hour) {
    vm.usd_per_hour = vm_request.usd_per_hour;
    vm.price_source = "the command line";
    vm.price_date.clear();
  }
  return vm;
}

double usable_gbps(const PlanRequest& request, const VmType& reducer) {
  return request.reducer_cpu_gbps > 0 ? std::min(request.reducer_cpu_gbps, reducer.gbps) : reducer.gbps;
}

// One worker has no traffic that a co-located reducer could save.
SplitTime time_through(const PlanRequest& r, double coverage) {
  return split_time(r.workers, r.slow_worker, coverage, !r.pool_alone && r.workers > 1);
}

// The members of a session that libsluice creates, or of NCCL's.
uint64_t ranks_of(const PlanRequest& r) {
  return r.workers * std::max<uint64_t>(r.ranks_per_host, 1);
}

double ring_time(const PlanRequest& r, uint64_t members) {
  return ring_traffic(members) / r.slow_worker;
}

Candidate evaluate(const Plan& plan, const VmType& vm) {
  const PlanRequest& r = plan.request;
  const double gbps = usable_gbps(r, vm);
  Candidate c;
  c.vm = vm;
  c.count = r.reducers != 0 ? r.reducers : reducers_for(r.workers, plan.worker.gbps, gbps, r.headroom);
  c.coverage = coverage(r.workers, plan.worker.gbps, c.count, gbps);
  if (vm.usd_per_hour) c.usd_per_hour = *vm.usd_per_hour * static_cast<double>(c.count);
  if (c.usd_per_hour && plan.workers_usd_per_hour && *plan.workers_usd_per_hour > 0) {
    c.extra = *c.usd_per_hour / *plan.workers_usd_per_hour;
    c.break_even = break_even_share(*c.extra, ring_time(r, r.workers) / time_through(r, c.coverage).time);
  }
  return c;
}

// Orders by cost. Candidates without a price come last, ordered by the number of reducers.
bool is_cheaper(const Candidate& a, const Candidate& b) {
  constexpr double kUnknown = 1e300;
  return std::tuple(a.usd_per_hour.value_or(kUnknown), a.count, a.vm.type) <
         std::tuple(b.usd_per_hour.value_or(kUnknown), b.count, b.vm.type);
}

bool matches(const VmType& vm, ArchFilter arch) {
  return arch == ArchFilter::kAny || (vm.arch == "arm64") == (arch == ArchFilter::kArm64);
}

// Considers the types of the worker's provider and network. EFA is left out: no transport of Sluice supports
// it.
Result<void> choose_reducer(Plan& plan, const VmCatalog& catalog) {
  const std::string& provider = plan.request.provider.empty() ? plan.worker.provider : plan.request.provider;
  if (provider.empty())
    return invalid("reducer type is not specified; set --reducer-type, --reducer-gbps or --provider");
  for (const VmType* vm : catalog.reducers_of(provider, plan.request.tier1)) {
    const VmNetwork network = vm->network();
    if (network != VmNetwork::kEfa && network == plan.worker.network())
      plan.candidates.push_back(evaluate(plan, *vm));
  }
  if (plan.candidates.empty()) {
    return invalid(
        fmt::format("the table has no reducer type of {} over {}; set --reducer-type or --reducer-gbps",
                    provider, to_string(plan.worker.network())));
  }
  std::sort(plan.candidates.begin(), plan.candidates.end(), is_cheaper);
  // The filters limit the choice; the report shows all candidates.
  const auto fits = [&](const Candidate& c) { return matches(c.vm, plan.request.arch); };
  auto best = std::ranges::find_if(plan.candidates,
                                   [&](const Candidate& c) { return fits(c) && c.count <= kMaxReducers; });
  if (best == plan.candidates.end()) best = std::ranges::find_if(plan.candidates, fits);
  if (best == plan.candidates.end())
    return invalid(fmt::format(
        "the table has no reducer type of {} with this architecture; set --arch any or --reducer-type",
        provider));
  plan.chosen = *best;
  plan.reducer = plan.chosen.vm;
  return {};
}

void predict(Plan& plan) {
  const PlanRequest& r = plan.request;
  const auto seconds = [&](double traffic) {
    return transfer_seconds(traffic, r.message_bytes, plan.worker.gbps);
  };
  const SplitTime split = time_through(r, plan.chosen.coverage);
  const double through = split.time;
  plan.co_located_share = split.co_located_share;
  const double nodes = ring_time(r, r.workers);
  // The traffic of one node does not use the network, regardless of its GPUs.
  const double flat = r.workers == 1 ? 0 : ring_time(r, r.workers * plan.gpus_per_node);
  const double tree = tree_traffic(r.workers) / r.slow_worker;
  plan.times = {.reducers = seconds(through),
                .ring_of_nodes = seconds(nodes),
                .flat_ring = seconds(flat),
                .tree = seconds(tree)};
  plan.speedup = nodes / through;
  plan.speedup_flat_ring = flat / through;
  plan.speedup_tree = tree / through;
  if (plan.speedup <= 1 + kRounding) {
    plan.verdict = Verdict::kNoGain;
  } else if (plan.chosen.count > kMaxReducers || ranks_of(r) > kMaxRanks) {
    plan.verdict = Verdict::kOverLimit;
  } else if (!plan.chosen.extra) {
    plan.verdict = Verdict::kGainCostUnknown;
  } else {
    const bool pays = plan.chosen.break_even && *plan.chosen.break_even <= r.exposed;
    plan.verdict = pays ? Verdict::kPays : Verdict::kDoesNotPay;
  }
}

void compare_pool_sizes(Plan& plan) {
  const PlanRequest& r = plan.request;
  if (r.pool_alone || r.workers == 1) return;
  plan.pool_sizes =
      pool_steps({.workers = r.workers,
                  .slowest = r.slow_worker,
                  .reducer_rate = plan.usable_gbps / plan.worker.gbps,
                  .full = reducers_for(r.workers, plan.worker.gbps * r.slow_worker, plan.usable_gbps, 1),
                  .chosen = plan.chosen.count,
                  .exposed_share = r.exposed,
                  .usd = plan.reducer.usd_per_hour,
                  .workers_usd = plan.workers_usd_per_hour});
}

struct FlowCap {
  double gbps = 0;     // 0: no limit is known
  std::string source;  // the origin of the limit, for people
};

// Returns the bandwidth limit of one TCP connection. EC2 limits a flow to 5 Gbit/s: 10 between VMs of one
// cluster placement group, 25 over ENA Express within a zone (EC2 user guide, "Amazon EC2 instance network
// bandwidth"). Other providers publish no limit, and InfiniBand queue pairs have none.
FlowCap flow_cap_of(const VmType& reducer) {
  if (reducer.network() == VmNetwork::kInfiniBand) return {.gbps = 0, .source = "no limit over InfiniBand"};
  if (reducer.provider != "aws")
    return {.gbps = 0, .source = "no limit per flow is known; set --flow-gbps for one"};
  return {.gbps = 5,
          .source =
              "EC2: 5 Gbps per flow; set --flow-gbps 10 within a cluster placement group, 25 with ENA "
              "Express"};
}

void plan_connections(Plan& plan) {
  const PlanRequest& r = plan.request;
  const auto reducers = static_cast<double>(plan.chosen.count);
  plan.pair_gbps = std::min(plan.worker.gbps / reducers, plan.usable_gbps / static_cast<double>(r.workers));
  const FlowCap cap = flow_cap_of(plan.reducer);
  plan.flow_gbps = r.flow_gbps > 0 ? r.flow_gbps : cap.gbps;
  plan.flow_cap_source = r.flow_gbps > 0 ? "from the command line" : cap.source;
  plan.flows_per_pair = plan.flow_gbps > 0 ? flows_for(plan.pair_gbps, plan.flow_gbps) : 1;
  // Each rank of a host has the connections of its rail.
  const uint64_t flows_of_session = div_ceil(plan.flows_per_pair, std::max<uint64_t>(r.ranks_per_host, 1));
  plan.lanes_per_session = std::clamp(flows_of_session, kDefaultLanes, kMaxLanes);
}

void plan_memory(Plan& plan) {
  // NCCL uses at most eight heads per node.
  constexpr uint64_t kMaxHeads = 8;
  const PlanRequest& r = plan.request;
  plan.session_bytes = session_bytes(r.workers, plan.chosen.count, plan.lanes_per_session);
  // Ranks that share a host open as many sessions as there are of them, each with one member for each host.
  plan.max_heads = std::max(std::min(plan.gpus_per_node, kMaxHeads), r.ranks_per_host);
  const uint64_t sessions = r.communicators * plan.max_heads;
  plan.memory_limit = round_up(sessions * plan.session_bytes, kGiB);
  plan.resident_bytes = resident_bytes(sessions, r.workers, plan.lanes_per_session, plan.session_bytes);
  plan.cpu_seconds_per_gb =
      kReducerCpuSecondsPerGb + (r.tls ? kTlsCpuSecondsPerGb : 0) + (r.health ? kHealthCpuSecondsPerGb : 0);
  plan.busy_processors =
      busy_processors(plan.usable_gbps * std::min(1.0, 1 / plan.chosen.coverage), plan.cpu_seconds_per_gb);
}

std::string pool_text(const Plan& plan) {
  const Candidate& c = plan.chosen;
  const std::string type =
      plan.reducer.type.empty() ? fmt::format("reducers of {} Gbps", plan.reducer.gbps) : plan.reducer.type;
  const std::string pool = fmt::format("{} x {}", c.count, type);
  const std::string workers = fmt::format("{} x {} Gbps", plan.request.workers, plan.worker.gbps);
  if (c.coverage >= 1 - kRounding) return fmt::format("{} cover {}", pool, workers);
  std::string text = fmt::format("{} cover {:.0f} % of {}", pool, std::floor(100 * c.coverage), workers);
  if (plan.co_located_share > 0)
    text += fmt::format(", the workers sum {:.0f} % of the data", 100 * plan.co_located_share);
  return text;
}

std::string no_gain_text(const Plan& plan) {
  if (plan.request.workers == 1) return "no gain: all traffic stays within one node";
  if (plan.request.workers == 2 && plan.speedup >= 1 - kRounding)
    return "no gain: with two nodes, a ring and NCCL's tree move no more bytes than reducers";
  return fmt::format("no gain: an allreduce takes {:.2f} x the time of a ring of nodes", 1 / plan.speedup);
}

}  // namespace

std::string_view to_string(Verdict verdict) noexcept {
  static constexpr std::string_view kNames[] = {"pays", "gain_cost_unknown", "does_not_pay", "no_gain",
                                                "over_limit"};
  return kNames[static_cast<size_t>(verdict)];
}

Result<Plan> make_plan(const PlanRequest& request, const VmCatalog& catalog, int64_t today) {
  SLUICE_RETURN_IF_ERROR(check(request));
  Plan plan;
  plan.request = request;
  SLUICE_ASSIGN_OR_RETURN(worker, resolve(request.worker, VmRole::kWorker, request, catalog));
  plan.worker = std::move(worker);
  plan.gpus_per_node =
      request.gpus_per_node != 0 ? request.gpus_per_node : std::max<uint64_t>(1, plan.worker.gpus);
  if (plan.worker.usd_per_hour)
    plan.workers_usd_per_hour = *plan.worker.usd_per_hour * static_cast<double>(request.workers);
  if (request.reducer.type.empty() && !request.reducer.gbps) {
    SLUICE_RETURN_IF_ERROR(choose_reducer(plan, catalog));
  } else {
    SLUICE_ASSIGN_OR_RETURN(reducer, resolve(request.reducer, VmRole::kReducer, request, catalog));
    plan.reducer = std::move(reducer);
    plan.chosen = evaluate(plan, plan.reducer);
  }
  plan.usable_gbps = usable_gbps(request, plan.reducer);
  predict(plan);
  compare_pool_sizes(plan);
  plan_connections(plan);
  plan_memory(plan);
  add_remarks(plan, today);
  return plan;
}

std::string verdict_sentence(const Plan& plan) {
  std::string text = pool_text(plan) + ": ";
  if (plan.verdict == Verdict::kNoGain) return text + no_gain_text(plan);
  text += fmt::format("allreduce up to {:.2f} x as fast as a ring of nodes", plan.speedup);
  if (plan.gpus_per_node > 1)
    text += fmt::format(" ({:.2f} x NCCL's flat ring over {} GPUs)", plan.speedup_flat_ring,
                        plan.request.workers * plan.gpus_per_node);
  if (plan.verdict == Verdict::kOverLimit)
    return text + fmt::format("; over the limits of a session, {} reducers and {} {}", kMaxReducers,
                              kMaxRanks, plan.request.ranks_per_host > 1 ? "ranks" : "nodes");
  if (!plan.chosen.extra) return text + "; cost unknown: a price is missing";
  text += fmt::format("; +{:.1f} % cost", 100 * *plan.chosen.extra);
  if (!plan.chosen.break_even) return text + ": does not pay at any share of communication";
  text += plan.verdict == Verdict::kPays
              ? ", pays"
              : fmt::format(": does not pay at {:.0f} % (--exposed), only", 100 * plan.request.exposed);
  return text + fmt::format(" when exposed communication exceeds {:.0f} % of the step",
                            100 * *plan.chosen.break_even);
}

}  // namespace sluice::config
