// `sluice plan`: how many reducers, what they gain and cost, and what to paste to get them.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "bench/e2e/exit_codes.h"
#include "cli/commands.h"
#include "cli/option_set.h"
#include "config/endpoints.h"
#include "config/plain_text.h"
#include "config/sizing/calendar_day.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/plan.h"

namespace sluice::cli {
namespace {

using bench::Failure;

struct PlanFlags {
  config::PlanRequest request;
  // 0 and -1 stand for "not given".
  double worker_gbps = 0;
  double worker_price = -1;
  double reducer_gbps = 0;
  double reducer_price = -1;
  std::string prices;
  std::string format = "text";
  std::string name = "train";
};

// The table that is built in, with the user's own over it.
config::VmCatalogue catalogue(const std::string& prices) {
  const config::VmCatalogue& built_in = config::VmCatalogue::built_in();
  if (prices.empty()) return built_in;
  return built_in.with(bench::value_or_fail(config::VmCatalogue::read(prices), bench::kExitConfig));
}

std::string shown(const config::Plan& plan, const PlanFlags& flags) {
  if (flags.format == "text") return config::plan_as_text(plan);
  if (flags.format == "json") return config::plan_as_json(plan);
  if (plan.chosen.count > config::kMaxEndpoints) {
    throw Failure(bench::kExitUsage, fmt::format("--format {}: {} reducers, and a session holds at most {}",
                                                 flags.format, plan.chosen.count, config::kMaxEndpoints));
  }
  const auto as = flags.format == "gcloud"      ? config::plan_as_gcloud
                  : flags.format == "jobset"    ? config::plan_as_jobset
                  : flags.format == "kustomize" ? config::plan_as_kustomize
                                                : config::plan_as_sbatch;
  return bench::value_or_fail(as(plan, flags.name), bench::kExitUsage);
}

int run_plan(PlanFlags flags) {
  if (!config::is_job_name(flags.name)) {
    throw Failure(
        bench::kExitUsage,
        fmt::format("--name {}: 1 to 40 of a-z, 0-9 and '-' are wanted, a letter first, no '-' last",
                    config::quoted(flags.name)));
  }
  config::PlanRequest& request = flags.request;
  if (flags.worker_gbps != 0) request.worker.gbps = flags.worker_gbps;
  if (flags.worker_price != -1) request.worker.usd_per_hour = flags.worker_price;
  if (flags.reducer_gbps != 0) request.reducer.gbps = flags.reducer_gbps;
  if (flags.reducer_price != -1) request.reducer.usd_per_hour = flags.reducer_price;
  const auto plan = bench::value_or_fail(config::make_plan(request, catalogue(flags.prices), config::today()),
                                         bench::kExitUsage);
  std::fputs(shown(plan, flags).c_str(), stdout);
  return bench::kExitOk;
}

void add_pool_options(OptionSet& set, PlanFlags& flags) {
  config::PlanRequest& r = flags.request;
  set.group("Workers");
  set.number("--workers", r.workers, {1, config::kMostWorkers}, "GPU nodes")->required();
  set.text("--worker-type", r.worker.type, "TYPE", "VM type of the table, and ...");
  set.number("--worker-gbps", flags.worker_gbps, {0, config::kMostGbps},
             "... or: 1e9 bit/s that a node's NIC carries each way; 0: as the table says");
  set.number("--worker-price", flags.worker_price, {-1, config::kMostUsd},
             "USD an hour for a node; -1: as the table says");
  set.number("--gpus-per-node", r.gpus_per_node, {0, config::kMostGpusPerNode},
             "NCCL's flat ring goes through every GPU; 0: as the table says, else 1");
  set.group("Reducers");
  set.text("--reducer-type", r.reducer.type, "TYPE", "VM type; without it the provider's are compared");
  set.number("--reducer-gbps", flags.reducer_gbps, {0, config::kMostGbps},
             "1e9 bit/s that one carries each way; 0: as the table says");
  set.number("--reducer-price", flags.reducer_price, {-1, config::kMostUsd},
             "USD an hour for one; -1: as the table says");
  set.number("--headroom", r.headroom, {config::kLeastHeadroom, 1},
             "share of a reducer's bandwidth to count on");
  set.number(
      "--reducer-cpu-gbps", r.reducer_cpu_gbps, {0, config::kMostGbps},
      "what its processors receive and answer, where that is less than its NIC carries; 0: they keep up");
  set.flag("--tier1", r.tier1, "GCP: reducers with Tier_1 networking, which is paid for besides");
  set.text("--provider", r.provider, "NAME",
           "aws, gcp, azure, or one of --prices; default: that of the types");
  set.choice("--arch", r.arch, "ARCH",
             {{"x86_64", config::ArchWish::kX86},
              {"arm64", config::ArchWish::kArm64},
              {"any", config::ArchWish::kAny}},
             "processors of the type that is chosen where none is named; the table says those of most");
}

void add_other_options(OptionSet& set, PlanFlags& flags) {
  config::PlanRequest& r = flags.request;
  set.group("Assumptions");
  set.size("--size", r.message_bytes, {1, config::kMostMessage},
           "bytes of the allreduce whose time is predicted");
  set.number("--flow-gbps", r.flow_gbps, {0, config::kMostGbps},
             "what one connection carries at most; 0: what is known of the provider");
  set.number("--communicators", r.communicators, {1, config::kMostCommunicators},
             "that share the pool at a time, for its memory");
  set.text("--prices", flags.prices, "FILE", "table of VM types and prices over the one that is built in");
  set.group("Output");
  set.text("--name", flags.name, "NAME", "of the job, in what is pasted");
}

}  // namespace

void add_plan_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand("plan", "how many reducers a job needs, what they gain and cost");
  app->footer(
      "  sluice plan --workers 8 --worker-type a2-highgpu-8g --reducer-type n1-highcpu-16\n"
      "  sluice plan --workers 5 --worker-gbps 100 --gpus-per-node 8 --provider gcp\n"
      "  sluice plan --workers 8 --worker-gbps 100 --reducer-gbps 100 --reducer-price 1.99 --format sbatch");
  auto flags = std::make_shared<PlanFlags>();
  OptionSet set(*app);
  add_pool_options(set, *flags);
  // Not of the set: SLUICE_REDUCERS is a list of addresses wherever a job runs.
  app->add_option("--reducers", flags->request.reducers,
                  "this many, whatever they cover; 0: as many as cover the workers [0 to 1000000]")
      ->capture_default_str()
      ->group("Reducers")
      ->take_last();
  add_other_options(set, *flags);
  // Nor this: `discover` has other formats.
  app->add_option("--format", flags->format,
                  "text, json; to paste: gcloud (Vertex AI), jobset, kustomize (Kubernetes), sbatch (Slurm)")
      ->check(CLI::IsMember({"text", "json", "gcloud", "jobset", "kustomize", "sbatch"}))
      ->type_name("FORMAT")
      ->capture_default_str()
      ->group("Output")
      ->take_last();
  app->callback([flags, &chosen] { chosen = [flags] { return run_plan(*flags); }; });
}

}  // namespace sluice::cli
