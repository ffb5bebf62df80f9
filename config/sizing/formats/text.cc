#include <fmt/format.h>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"

namespace sluice::config {
namespace {

constexpr double kMebibyte = 1024.0 * 1024;

std::string duration(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", 1e3 * seconds);
  return fmt::format("{:.2f} us", 1e6 * seconds);
}

std::string usd(const std::optional<double>& per_hour) {
  return per_hour ? fmt::format("{:.2f} USD/h", *per_hour) : "price unknown";
}

std::string percent(const std::optional<double>& share, const char* fallback) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : fallback;
}

// Returns "a2-highgpu-8g (gcp), 100 Gbps".
std::string vm_text(const VmType& vm) {
  std::string text = vm.type;
  if (!vm.type.empty() && !vm.provider.empty()) text += " (" + vm.provider + ")";
  if (!vm.type.empty()) text += ", ";
  text += fmt::format("{:g} Gbps", vm.gbps);
  if (vm.arch == "arm64") text += ", arm64";
  return text;
}

void row(std::string& out, std::string_view label, const std::string& value, const std::string& right = {}) {
  out += fmt::format("  {:<21}{}", label, value);
  if (!right.empty()) out += fmt::format("{:>{}}", right, value.size() < 50 ? 50 - value.size() + 14 : 16);
  out += '\n';
}

void add_pool(std::string& out, const Plan& plan) {
  const PlanRequest& r = plan.request;
  const Candidate& c = plan.chosen;
  const auto gbps = [](uint64_t count, double each) { return static_cast<double>(count) * each; };
  row(out, "workers",
      fmt::format("{} x {}, {} GPU{} each", r.workers, vm_text(plan.worker), plan.gpus_per_node,
                  plan.gpus_per_node == 1 ? "" : "s"),
      usd(plan.workers_usd_per_hour));
  if (r.ranks_per_host != 0) {
    row(out, "ranks",
        fmt::format("{} hosts x {}, each host sends its sum once (SLUICE_HOSTS)", r.workers,
                    r.ranks_per_host));
  }
  row(out, "reducers", fmt::format("{} x {}", c.count, vm_text(plan.reducer)), usd(c.usd_per_hour));
  row(out, "bandwidth",
      fmt::format("reducers {:g} Gbps, workers {:g} Gbps: coverage {:.2f}", gbps(c.count, plan.usable_gbps),
                  gbps(r.workers, plan.worker.gbps), c.coverage));
  row(out, "extra cost", percent(c.extra, "unknown"));
  row(out, "break-even",
      c.break_even ? fmt::format("exposed communication is {:.1f} % of the step", 100 * *c.break_even)
      : c.extra    ? "never"
                   : "unknown");
}

void add_times(std::string& out, const Plan& plan) {
  const PlanRequest& r = plan.request;
  const auto line = [&](std::string_view label, double seconds, double ratio) {
    row(out, label, fmt::format("{:>10}{:>10.2f} x", duration(seconds), ratio));
  };
  out += fmt::format("\n  {:<21}{:>10}{:>12}\n", "allreduce of " + size_text(r.message_bytes), "at least",
                     "vs reducers");
  line("through reducers", plan.times.reducers, 1);
  line("ring of nodes", plan.times.ring_of_nodes, plan.speedup);
  if (plan.gpus_per_node > 1)
    line(fmt::format("ring of {} GPUs", r.workers * plan.gpus_per_node), plan.times.flat_ring,
         plan.speedup_flat_ring);
  line("tree of nodes", plan.times.tree, plan.speedup_tree);
}

void add_settings(std::string& out, const Plan& plan) {
  const PlanRequest& r = plan.request;
  out += '\n';
  row(out, "flows",
      fmt::format("{} per worker and reducer, {:.3g} Gbps in total ({})", plan.flows_per_pair, plan.pair_gbps,
                  plan.flow_cap_source));
  row(out, "memory",
      fmt::format("{:.1f} MiB per communicator at each reducer{}",
                  static_cast<double>(plan.session_bytes) / kMebibyte,
                  plan.max_heads > 1 ? fmt::format(", for each of up to {} {}", plan.max_heads,
                                                   r.ranks_per_host == plan.max_heads ? "rails" : "heads")
                                     : ""));
  row(out, "reducer options",
      fmt::format("--lanes-per-session {} --memory-limit {}   ({} communicators)", plan.lanes_per_session,
                  size_text(plan.memory_limit), r.communicators));
  row(out, "CPUs", fmt::format("about {:.1f} busy at each reducer", plan.busy_processors));
}

void add_pool_sizes(std::string& out, const Plan& plan) {
  const std::vector<PoolStep>& steps = plan.pool_sizes.steps;
  if (steps.empty()) return;
  out += fmt::format("\n  {:>8}{:>12}{:>10}{:>12}{:>13}{:>10}{:>12}\n", "reducers", "time", "vs ring",
                     "in workers", "total USD/h", "extra", "pays from");
  for (const PoolStep& s : steps) {
    const char* none = s.reducers == 0 ? "" : s.extra ? "never" : "unknown";
    out += fmt::format("{} {:>8}{:>8.3f} S/B{:>8.2f} x{:>10.0f} %{:>13}{:>10}{:>12}\n",
                       s.reducers == plan.chosen.count ? '*' : ' ', s.reducers, s.time, s.speedup,
                       100 * s.co_located_share,
                       s.usd_per_hour ? fmt::format("{:.2f}", *s.usd_per_hour) : "unknown",
                       percent(s.extra, "unknown"), percent(s.pays_from, none));
  }
  const std::optional<uint64_t> paying = plan.pool_sizes.paying;
  out += paying ? fmt::format(
                      "  At {:.0f} % exposed communication the cost of a step is lowest with {} reducer{}.\n",
                      100 * plan.request.exposed, *paying, *paying == 1 ? "" : "s")
                : "  Set the missing price to see where the next reducer stops paying.\n";
}

void add_candidates(std::string& out, const Plan& plan) {
  if (plan.candidates.empty()) return;
  out += fmt::format("\n  {:<24}{:<8}{:>6}{:>10}{:>10}{:>13}{:>10}{:>12}\n", "reducer types", "arch", "Gbps",
                     "reducers", "coverage", "total USD/h", "extra", "break-even");
  for (const Candidate& c : plan.candidates) {
    out += fmt::format("{} {:<24}{:<8}{:>6g}{:>10}{:>10.2f}{:>13}{:>10}{:>12}\n",
                       c.vm.type == plan.reducer.type ? '*' : ' ', c.vm.type, c.vm.arch, c.vm.gbps, c.count,
                       c.coverage, c.usd_per_hour ? fmt::format("{:.2f}", *c.usd_per_hour) : "unknown",
                       percent(c.extra, "unknown"), percent(c.break_even, c.extra ? "never" : "unknown"));
  }
}

void add_list(std::string& out, std::string_view title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  out += fmt::format("\n{}\n", title);
  for (const std::string& line : lines) append_wrapped(out, line, "  * ", "    ");
}

}  // namespace

std::string plan_as_text(const Plan& plan) {
  std::string out;
  append_wrapped(out, verdict_sentence(plan) + ".", "", "");
  out += '\n';
  add_pool(out, plan);
  add_times(out, plan);
  add_pool_sizes(out, plan);
  add_settings(out, plan);
  add_candidates(out, plan);
  add_list(out, "Warnings", plan.warnings);
  add_list(out, "Sources and assumptions", plan.notes);
  return out;
}

}  // namespace sluice::config
