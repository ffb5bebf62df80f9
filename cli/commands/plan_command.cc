// Implements `sluice plan`: computes the number of reducers, their speedup and cost, and writes deployment
// files.
#include <fmt/format.h>

#include <memory>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"
#include "config/endpoints.h"
#include "config/printable_text.h"
#include "config/sizing/calendar_day.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/plan.h"

namespace sluice::cli {
namespace {

using bench::Failure;

struct PlanFlags {
  config::PlanRequest request;
  // 0 and -1 mean "not set".
  double worker_gbps = 0;
  double worker_price = -1;
  double reducer_gbps = 0;
  double reducer_price = -1;
  std::string prices;
  std::string format = "text";
  std::string name = "train";
  std::string plot;
};

// Returns the embedded table, overridden by the user's table.
config::VmCatalog load_catalog(const std::string& prices) {
  const config::VmCatalog& built_in = config::VmCatalog::built_in();
  if (prices.empty()) return built_in;
  return built_in.with(bench::value_or_fail(config::VmCatalog::read(prices), bench::kExitConfig));
}

std::string format_plan(const config::Plan& plan, const PlanFlags& flags) {
  if (flags.format == "text") return config::plan_as_text(plan);
  if (flags.format == "json") return config::plan_as_json(plan);
  if (plan.chosen.count > config::kMaxEndpoints) {
    throw Failure(bench::kExitUsage,
                  fmt::format("--format {}: the plan has {} reducers, a session supports at most {}",
                              flags.format, plan.chosen.count, config::kMaxEndpoints));
  }
  const auto write_plan = flags.format == "gcloud"      ? config::plan_as_gcloud
                          : flags.format == "jobset"    ? config::plan_as_jobset
                          : flags.format == "kustomize" ? config::plan_as_kustomize
                                                        : config::plan_as_sbatch;
  return bench::value_or_fail(write_plan(plan, flags.name), bench::kExitUsage);
}

int run_plan(PlanFlags flags) {
  if (!config::is_job_name(flags.name)) {
    throw Failure(
        bench::kExitUsage,
        fmt::format(
            "--name {}: expected 1 to 40 of a-z, 0-9 and \"-\", with a letter first and no \"-\" last",
            config::in_quotes(flags.name)));
  }
  config::PlanRequest& request = flags.request;
  if (flags.worker_gbps != 0) request.worker.gbps = flags.worker_gbps;
  if (flags.worker_price != -1) request.worker.usd_per_hour = flags.worker_price;
  if (flags.reducer_gbps != 0) request.reducer.gbps = flags.reducer_gbps;
  if (flags.reducer_price != -1) request.reducer.usd_per_hour = flags.reducer_price;
  const auto plan = bench::value_or_fail(
      config::make_plan(request, load_catalog(flags.prices), config::today()), bench::kExitUsage);
  if (const size_t dot = flags.plot.rfind('.'), slash = flags.plot.rfind('/');
      dot != std::string::npos && (slash == std::string::npos || dot > slash) &&
      flags.plot.substr(dot) != ".svg") {
    throw Failure(bench::kExitUsage, fmt::format("--plot {}: the plot is SVG; name the file .svg",
                                                 config::in_quotes(flags.plot)));
  }
  if (!flags.plot.empty() && plan.pool_sizes.steps.empty())
    throw Failure(bench::kExitUsage,
                  fmt::format("--plot {}: there is nothing to compare with one worker or --pool-alone",
                              config::in_quotes(flags.plot)));
  bench::print_result(format_plan(plan, flags));
  if (!flags.plot.empty()) bench::write_result_file(flags.plot, config::plan_as_svg(plan));
  return bench::kExitOk;
}

void add_pool_options(OptionSet& set, PlanFlags& flags) {
  config::PlanRequest& r = flags.request;
  set.group("Workers");
  set.number("--workers", r.workers, {1, config::kMaxWorkers}, "number of GPU nodes")->required();
  set.text("--worker-type", r.worker.type, "TYPE", "VM type in the table; alternative to --worker-gbps");
  set.number("--worker-gbps", flags.worker_gbps, {0, config::kMaxGbps},
             "NIC bandwidth of a node in 1e9 bit/s per direction; 0: from the table");
  set.number("--worker-price", flags.worker_price, {-1, config::kMaxUsd},
             "price of a node in USD per hour; -1: from the table");
  set.flag("--ethernet", r.ethernet,
           "plan for the Ethernet of a worker type that also has an RDMA network, which NCCL prefers");
  set.number("--gpus-per-node", r.gpus_per_node, {0, config::kMaxGpusPerNode},
             "GPUs per node, which all take part in NCCL's flat ring; 0: from the table, otherwise 1");
  set.number("--ranks-per-host", r.ranks_per_host, {0, config::kMaxRanksPerHost},
             "ranks of a job outside NCCL on each node, which share its card and send their sum once "
             "(SLUICE_HOSTS); 0: jobs with the NCCL plugin, where NCCL does that");
  set.group("Reducers");
  set.text("--reducer-type", r.reducer.type, "TYPE",
           "VM type in the table; default: the best of the provider");
  set.number("--reducer-gbps", flags.reducer_gbps, {0, config::kMaxGbps},
             "NIC bandwidth of a reducer in 1e9 bit/s per direction; 0: from the table");
  set.number("--reducer-price", flags.reducer_price, {-1, config::kMaxUsd},
             "price of a reducer in USD per hour; -1: from the table");
  set.number("--headroom", r.headroom, {config::kMinHeadroom, 1},
             "share of a reducer's bandwidth that the plan uses");
  set.number(
      "--reducer-cpu-gbps", r.reducer_cpu_gbps, {0, config::kMaxGbps},
      "bandwidth limit of a reducer's CPUs in 1e9 bit/s, when lower than that of its NIC; 0: no limit");
  set.flag("--tier1", r.tier1, "on GCP: use reducers with Tier_1 networking, which costs extra");
  set.text("--provider", r.provider, "NAME",
           "aws, gcp, azure, or a provider of --prices; default: the provider of the types");
  set.choice("--arch", r.arch, "ARCH",
             {{"x86_64", config::ArchFilter::kX86},
              {"arm64", config::ArchFilter::kArm64},
              {"any", config::ArchFilter::kAny}},
             "CPU architecture when --reducer-type is not set");
}

void add_other_options(OptionSet& set, PlanFlags& flags) {
  config::PlanRequest& r = flags.request;
  set.group("Assumptions");
  set.size("--size", r.message_bytes, {1, config::kMaxMessage},
           "bytes of the allreduce whose time is predicted");
  set.number("--flow-gbps", r.flow_gbps, {0, config::kMaxGbps},
             "bandwidth limit of one connection in 1e9 bit/s; 0: the provider's known limit");
  set.number("--slow-worker", r.slow_worker, {config::kMinSlowWorker, 1},
             "bandwidth of the slowest worker, as a share of the others'");
  set.number(
      "--exposed", r.exposed, {0, 1},
      "share of a step that is exposed communication with a ring, for the verdict; the next reducer pays "
      "while it lowers the cost of such a step");
  set.flag("--with-tls", r.tls, "count the CPU time of TLS at the reducers");
  set.flag("--with-health", r.health, "count the CPU time of --health at the reducers");
  set.flag("--pool-alone", r.pool_alone, "predict without co-located reducers in the workers");
  set.number("--communicators", r.communicators, {1, config::kMaxCommunicators},
             "number of communicators that share the pool at a time, to size its memory");
  set.text("--prices", flags.prices, "FILE",
           "table of VM types and prices that overrides the embedded table");
  set.group("Output");
  set.text("--plot", flags.plot, "FILE", "write the time by pool size as an SVG plot");
  set.text("--name", flags.name, "NAME", "job name in deployment files");
}

}  // namespace

void add_plan_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "plan", "compute the number of reducers for a job, their speedup and their cost");
  app->footer(
      "  sluice plan --workers 8 --worker-type a2-highgpu-8g --reducer-type n1-highcpu-16\n"
      "  sluice plan --workers 5 --worker-gbps 100 --gpus-per-node 8 --provider gcp\n"
      "  sluice plan --workers 8 --worker-gbps 100 --reducer-gbps 100 --reducer-price 1.99 --format sbatch\n"
      "  sluice plan --workers 8 --worker-type p3dn.24xlarge --exposed 0.4 --plot pool.svg");
  auto flags = std::make_shared<PlanFlags>();
  OptionSet set(*app);
  add_pool_options(set, *flags);
  // Has no variable, because SLUICE_REDUCERS is the list of reducer addresses.
  app->add_option("--reducers", flags->request.reducers,
                  "number of reducers; 0: as many as cover the workers [0 to 1000000]")
      ->capture_default_str()
      ->group("Reducers")
      ->take_last();
  add_other_options(set, *flags);
  // Has no variable, because `discover` has an option of the same name with other formats.
  app->add_option("--format", flags->format,
                  "output format: text, json, or a deployment file: gcloud (Vertex AI), jobset, kustomize "
                  "(Kubernetes), sbatch (Slurm)")
      ->check(CLI::IsMember({"text", "json", "gcloud", "jobset", "kustomize", "sbatch"}))
      ->type_name("FORMAT")
      ->capture_default_str()
      ->group("Output")
      ->take_last();
  run_when_selected(*app, chosen, flags, run_plan);
}

}  // namespace sluice::cli
