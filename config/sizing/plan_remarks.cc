#include "config/sizing/plan_remarks.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "config/sizing/calendar_day.h"
#include "config/sizing/model.h"
#include "config/sizing/session_memory.h"

namespace sluice::config {
namespace {

constexpr int64_t kYear = 365;
// In every type of the table, a bandwidth from here on is that of an RDMA network between GPUs.
constexpr double kRdmaClassGbps = 800;
constexpr uint64_t kMaxGpusOfCollNet = 8;

// VM types whose GPUs have a network that NCCL reaches through a plugin of the provider.
struct GpuNetwork {
  std::string_view types;  // prefix
  std::string_view network;
};
constexpr std::array<GpuNetwork, 8> kGpuNetworks{{{"p3dn.", "EFA (aws-ofi-nccl)"},
                                                  {"p4d", "EFA (aws-ofi-nccl)"},
                                                  {"p5", "EFA (aws-ofi-nccl)"},
                                                  {"p6", "EFA (aws-ofi-nccl)"},
                                                  {"a3-highgpu", "GPUDirect-TCPX"},
                                                  {"a3-megagpu", "GPUDirect-TCPXO"},
                                                  {"a3-ultragpu", "RoCE (gIB)"},
                                                  {"a4-", "RoCE (gIB)"}}};

template <typename... Args>
void warn(Plan& plan, fmt::format_string<Args...> text, Args&&... args) {
  plan.warnings.push_back(fmt::format(text, std::forward<Args>(args)...));
}

std::string name_of(const VmType& vm) {
  if (!vm.type.empty()) return vm.type;
  return vm.role == VmRole::kWorker ? "the workers" : "the reducers";
}

// Time of an allreduce in multiples of S / Bw.
double through_time(const Plan& plan) {
  return plan.times.reducers / transfer_seconds(1, plan.request.message_bytes, plan.worker.gbps);
}

void warn_about_gain(Plan& plan) {
  const uint64_t n = plan.request.workers;
  if (n == 2) {
    warn(plan, "two nodes gain nothing; the NCCL plugin does not offload them (SLUICE_MIN_NODES)");
  } else if (n > 2 && plan.verdict == Verdict::kNoGain) {
    warn(plan, "the pool is too narrow: a ring of the workers alone is at least as fast");
  }
  if (plan.verdict == Verdict::kDoesNotPay && !plan.chosen.break_even)
    warn(plan, "does not pay: these reducers cost more than they can save");
  const std::vector<PoolStep>& steps = plan.pool_sizes.steps;
  if (n > 2 && !steps.empty() && steps.front().time * (1 - kRounding) <= through_time(plan))
    warn(plan,
         "no reducer is needed: co-located reducers alone are as fast, because a slow worker sets the time");
  const Candidate& c = plan.chosen;
  if (c.coverage < 1 - kRounding) {
    warn(plan,
         "coverage {:.2f}: the reducers carry {:g} of the workers' {:g} Gbps; {} reducers would cover all",
         c.coverage, static_cast<double>(c.count) * plan.usable_gbps,
         static_cast<double>(n) * plan.worker.gbps, reducers_for(n, plan.worker.gbps, plan.usable_gbps, 1));
  }
}

void warn_about_limits(Plan& plan) {
  if (plan.gpus_per_node > kMaxGpusOfCollNet) {
    warn(plan,
         "{} GPUs per node: NCCL 2.28.3 and newer never offload with more than 8 GPUs per node (they select "
         "neither CollNet algorithm); 2.23 to 2.27 may use CollNetChain",
         plan.gpus_per_node);
  }
  if (const uint64_t each = plan.request.ranks_per_host;
      each > 1 && plan.request.workers * each > kMaxRanks) {
    warn(plan, "{} hosts x {} ranks: a session supports at most {} ranks", plan.request.workers, each,
         kMaxRanks);
  } else if (plan.request.workers > kMaxRanks) {
    warn(plan, "{} nodes: a session supports at most {} ranks", plan.request.workers, kMaxRanks);
  }
  if (plan.chosen.count > kMaxReducers)
    warn(plan, "{} reducers: a session supports at most {}", plan.chosen.count, kMaxReducers);
  if (plan.flows_per_pair > kMaxLanes) {
    warn(plan,
         "each worker would need {} flows of {:g} Gbps to each reducer, the limit is {}: use more and "
         "smaller reducers",
         plan.flows_per_pair, plan.flow_gbps, kMaxLanes);
  }
}

void warn_about_networks(Plan& plan) {
  const VmNetwork worker_network = plan.worker.network();
  const VmNetwork reducer_network = plan.reducer.network();
  if (worker_network != reducer_network) {
    warn(plan,
         "the bandwidth of {} is over {}, the bandwidth of {} over {}: check that one network connects them, "
         "and its bandwidth",
         name_of(plan.worker), to_string(worker_network), name_of(plan.reducer), to_string(reducer_network));
  }
  if (reducer_network == VmNetwork::kEfa)
    warn(plan, "{}: the bandwidth is for EFA, which Sluice does not support; TCP reaches less",
         name_of(plan.reducer));
  if (reducer_network == VmNetwork::kInfiniBand)
    warn(plan,
         "{}: the bandwidth is for InfiniBand; Sluice's RDMA transport was tested only over RoCE "
         "(docs/design/rdma.md)",
         name_of(plan.reducer));
  if (plan.request.ethernet) {
    warn(plan,
         "--ethernet: NCCL must use Ethernet too (NCCL_IB_DISABLE=1); on an RDMA network of the workers its "
         "own algorithms may be faster than this pool");
  }
  for (const GpuNetwork& known : kGpuNetworks) {
    if (!plan.worker.type.starts_with(known.types) || plan.request.ethernet) continue;
    warn(plan,
         "on {} NCCL uses {} where its plugin is installed, which NCCL_NET_PLUGIN=sluice replaces: compare "
         "first (docs/guides/network-plugins.md)",
         plan.worker.type, known.network);
    break;
  }
  if (plan.worker.gbps >= kRdmaClassGbps && worker_network == VmNetwork::kEthernet) {
    warn(plan,
         "{:g} Gbps per node is mostly an RDMA network between GPUs, which CPU-only VMs do not join: set "
         "--worker-gbps to the bandwidth towards the reducers",
         plan.worker.gbps);
  }
  if (!plan.worker.provider.empty() && !plan.reducer.provider.empty() &&
      plan.worker.provider != plan.reducer.provider) {
    warn(plan, "workers are at {}, reducers at {}: traffic between providers is slow and billed",
         plan.worker.provider, plan.reducer.provider);
  }
}

// Warns such as "the price of n1-highcpu-16 dates from 2024-02-19, ...".
void warn_about_age(Plan& plan, const VmType& vm, std::string_view what, const std::string& date,
                    int64_t today) {
  if (date == "undated") {
    warn(plan, "the {} of {} is undated in its source", what, name_of(vm));
    return;
  }
  const auto day = parse_day(date);
  if (day && today - *day > kYear) {
    warn(plan, "the {} of {} dates from {}, more than a year ago: check it", what, name_of(vm), date);
  }
}

void warn_about_vm(Plan& plan, const VmType& vm, int64_t today) {
  warn_about_age(plan, vm, "bandwidth", vm.bandwidth_date, today);
  if (vm.usd_per_hour) {
    warn_about_age(plan, vm, "price", vm.price_date, today);
  } else if (!vm.type.empty()) {
    warn(plan, "the price of {} is unknown: set {}", vm.type,
         vm.role == VmRole::kWorker ? "--worker-price" : "--reducer-price");
  }
  if (vm.tier1())
    warn(plan, "{}: {:g} Gbps requires Tier_1 networking, which is not included in the price", vm.type,
         vm.gbps);
  if (vm.arch == "arm64")
    warn(plan,
         "{} is arm64: Sluice is cross-compiled for arm64 and tested in an emulator, but not on hardware",
         vm.type);
  if (vm.note.find("UNVERIFIED") != std::string::npos) warn(plan, "{}: {}", vm.type, vm.note);
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
      note(fmt::format("{}: {:g} USD per hour{} from {}{}", vm->type, *vm->usd_per_hour,
                       vm->price_region.empty() ? "" : ", on demand, " + vm->price_region + ",",
                       vm->price_source.empty() ? vm->table : vm->price_source,
                       vm->price_date.empty() ? "" : ", " + vm->price_date));
    }
    if (!vm->note.empty() && vm->note.find("UNVERIFIED") == std::string::npos)
      note(fmt::format("{}: {}", vm->type, vm->note));
  }
  if (const uint64_t each = plan.request.ranks_per_host; each > 1) {
    note(fmt::format(
        "the {0} ranks of a host share its card and send their sum once, as NCCL does. With "
        "SLUICE_HOSTS=off each would send all its data, and an allreduce would take {0} x as long",
        each));
  }
  note("times are bytes over bandwidth: no latency, no headers, no waiting for slow ranks");
  if (plan.co_located_share > 0) {
    const auto n = static_cast<double>(plan.request.workers);
    const double traffic = (n - 1) * plan.co_located_share / n;  // a worker receives as a reducer, in S
    note(fmt::format(
        "co-located reducers keep about {:.1f} CPUs of each worker busy",
        busy_processors(traffic / through_time(plan) * plan.worker.gbps, plan.cpu_seconds_per_gb)));
  }
  note(fmt::format(
      "CPUs: assumes {:g} s of CPU time per 1e9 bytes received, {} TLS (--with-tls) and {} --health "
      "(--with-health; docs/results/benchmarks.md, loopback)",
      plan.cpu_seconds_per_gb, plan.request.tls ? "with" : "without",
      plan.request.health ? "with" : "without"));
}

}  // namespace

void add_remarks(Plan& plan, int64_t today) {
  warn_about_gain(plan);
  warn_about_limits(plan);
  warn_about_networks(plan);
  warn_about_vm(plan, std::as_const(plan).worker, today);
  warn_about_vm(plan, std::as_const(plan).reducer, today);
  add_notes(plan);
}

}  // namespace sluice::config
