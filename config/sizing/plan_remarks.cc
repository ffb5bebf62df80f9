#include "config/sizing/plan_remarks.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "config/sizing/calendar_day.h"
#include "config/sizing/model.h"
#include "config/sizing/session_memory.h"

namespace sluice::config {
namespace {

constexpr int64_t kYear = 365;
// From here on a node's bandwidth is that of GPUs' own RDMA networks, in every type of the table.
constexpr double kRdmaClassGbps = 800;
constexpr uint64_t kMostGpusOfCollNet = 8;
constexpr double kRounding = 1e-9;

void warn(Plan& plan, std::string text) {
  plan.warnings.push_back(std::move(text));
}

std::string name_of(const VmType& vm) {
  if (!vm.type.empty()) return vm.type;
  return vm.role == VmRole::kWorker ? "the workers" : "the reducers";
}

void about_gain(Plan& plan) {
  const uint64_t n = plan.request.workers;
  if (n == 2) {
    warn(plan, "two nodes gain nothing, and the NCCL plugin leaves them to NCCL (SLUICE_MIN_NODES)");
  } else if (n > 2 && plan.verdict == Verdict::kNoGain) {
    warn(plan, "the pool is so narrow that a ring of the workers alone is as fast, or faster");
  }
  if (plan.verdict == Verdict::kDoesNotPay)
    warn(plan, "does not pay: these reducers cost more than the time that they can save");
  const Candidate& c = plan.chosen;
  if (c.coverage < 1 - kRounding) {
    warn(plan, fmt::format(
                   "coverage {:.2f}: the reducers carry {:g} of the workers' {:g} Gbps; {} of them cover all",
                   c.coverage, static_cast<double>(c.count) * plan.usable_gbps,
                   static_cast<double>(n) * plan.worker.gbps,
                   reducers_for(n, plan.worker.gbps, plan.usable_gbps, 1)));
  }
}

void about_nccl(Plan& plan) {
  if (plan.gpus_per_node > kMostGpusOfCollNet) {
    warn(plan,
         fmt::format("{} GPUs in a node: NCCL 2.28.3 and newer never offload where a node has more than 8 "
                     "(neither CollNet algorithm is taken); 2.23 to 2.27 may by CollNetChain",
                     plan.gpus_per_node));
  }
  if (plan.request.workers > kMostRanks)
    warn(plan, fmt::format("{} nodes: a session has at most {} ranks", plan.request.workers, kMostRanks));
  if (plan.chosen.count > kMostReducers)
    warn(plan, fmt::format("{} reducers: a session has at most {}", plan.chosen.count, kMostReducers));
  if (plan.flows_per_pair > kMostLanes) {
    warn(plan,
         fmt::format("{} flows of {:g} Gbps would be needed from each worker to each reducer, and {} are the "
                     "most: use more and narrower reducers",
                     plan.flows_per_pair, plan.flow_gbps, kMostLanes));
  }
}

void about_networks(Plan& plan) {
  const VmNetwork of_worker = plan.worker.network();
  const VmNetwork of_reducer = plan.reducer.network();
  if (of_worker != of_reducer) {
    warn(plan, fmt::format(
                   "{} is listed with its bandwidth over {}, {} with its over {}: check that they reach each "
                   "other over one network, and what that carries",
                   name_of(plan.worker), to_string(of_worker), name_of(plan.reducer), to_string(of_reducer)));
  }
  if (of_reducer == VmNetwork::kEfa)
    warn(plan, fmt::format("{}: the figure is of EFA, which Sluice does not speak; TCP gets less",
                           name_of(plan.reducer)));
  if (of_reducer == VmNetwork::kInfiniBand)
    warn(plan, fmt::format(
                   "{}: the figure is of InfiniBand; Sluice's RDMA was proved over RoCE alone (docs/rdma.md)",
                   name_of(plan.reducer)));
  if (plan.worker.gbps >= kRdmaClassGbps) {
    warn(plan, fmt::format(
                   "{:g} Gbps a node are mostly an RDMA network between GPUs, which a CPU-only VM is not on: "
                   "put the share that reaches one into --worker-gbps",
                   plan.worker.gbps));
  }
  if (!plan.worker.provider.empty() && !plan.reducer.provider.empty() &&
      plan.worker.provider != plan.reducer.provider) {
    warn(plan, fmt::format("workers of {}, reducers of {}: traffic between providers is slow and paid for",
                           plan.worker.provider, plan.reducer.provider));
  }
}

// "the price of n1-highcpu-16 is of 2024-02-19"
void about_age(Plan& plan, const VmType& vm, std::string_view what, const std::string& date, int64_t today) {
  if (date == "undated") {
    warn(plan, fmt::format("the {} of {} is undated in its source", what, name_of(vm)));
    return;
  }
  const auto day = parse_day(date);
  if (day && today - *day > kYear) {
    warn(plan, fmt::format("the {} of {} is of {}, more than a year old: check it", what, name_of(vm), date));
  }
}

void about_figures(Plan& plan, const VmType& vm, int64_t today) {
  about_age(plan, vm, "bandwidth", vm.bandwidth_date, today);
  if (vm.usd_per_hour) {
    about_age(plan, vm, "price", vm.price_date, today);
  } else if (!vm.type.empty()) {
    warn(plan, fmt::format("no price of {} is known: {} sets one", vm.type,
                           vm.role == VmRole::kWorker ? "--worker-price" : "--reducer-price"));
  }
  if (vm.tier1())
    warn(plan, fmt::format("{}: {:g} Gbps take Tier_1 networking, which is paid for beside the price here",
                           vm.type, vm.gbps));
  if (vm.arch == "arm64")
    warn(plan,
         fmt::format("{} is arm64: Sluice is cross-built for it and its tests run under an emulator, but it "
                     "has not run on such a machine",
                     vm.type));
  if (vm.note.find("UNVERIFIED") != std::string::npos) warn(plan, fmt::format("{}: {}", vm.type, vm.note));
}

void add_notes(Plan& plan) {
  const auto note = [&](std::string text) { plan.notes.push_back(std::move(text)); };
  for (const VmType* vm : {&std::as_const(plan).worker, &std::as_const(plan).reducer}) {
    if (vm->type.empty()) continue;
    if (!vm->bandwidth_source.empty())
      note(fmt::format("{}: {:g} Gbps ({}) from {}{}", vm->type, vm->gbps,
                       vm->kind.empty() ? "as given" : vm->kind, vm->bandwidth_source,
                       vm->bandwidth_date.empty() ? "" : ", " + vm->bandwidth_date));
    if (vm->usd_per_hour) {
      note(fmt::format("{}: {:g} USD an hour{} from {}{}", vm->type, *vm->usd_per_hour,
                       vm->price_region.empty() ? "" : ", on demand, " + vm->price_region + ",",
                       vm->price_source.empty() ? vm->table : vm->price_source,
                       vm->price_date.empty() ? "" : ", " + vm->price_date));
    }
    if (!vm->note.empty() && vm->note.find("UNVERIFIED") == std::string::npos)
      note(fmt::format("{}: {}", vm->type, vm->note));
  }
  note("times count bytes over bandwidth alone: no latency, no headers, no waiting for a late rank");
  note(fmt::format(
      "processors: assumed from {:g} s of CPU for 1e9 bytes received (docs/benchmarks.md, loopback)",
      kReducerCpuSecondsPerGb));
}

}  // namespace

void add_remarks(Plan& plan, int64_t today) {
  about_gain(plan);
  about_nccl(plan);
  about_networks(plan);
  about_figures(plan, std::as_const(plan).worker, today);
  about_figures(plan, std::as_const(plan).reducer, today);
  add_notes(plan);
}

}  // namespace sluice::config
