// Implements `sluice bench` and its commands that measure with workers and reducers and need no file of their
// own: allreduce, latency, link and soak.
#include "cli/commands/bench/bench_commands.h"

#include <cstdlib>
#include <memory>

#include "bench/e2e/allreduce/allreduce_bench.h"
#include "bench/e2e/allreduce/allreduce_report.h"
#include "bench/e2e/latency/latency_bench.h"
#include "bench/e2e/link/link_bench.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/launcher.h"
#include "bench/e2e/soak/soak_bench.h"
#include "cli/options/nccl_flags.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"
#include "cli/process/logging.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using Arguments = std::vector<std::string>;

void add_output_options(OptionSet& set, std::string& json, std::string& csv) {
  set.group("Output");
  set.output_file("--json", json, "write results as JSON");
  set.output_file("--csv", csv, "write results as CSV with raw numbers");
}

void add_allreduce(CLI::App& bench, Command& chosen, const Arguments& arguments) {
  CLI::App* app = bench.add_subcommand(
      "allreduce", "measure allreduce over reducers, with the options and the output of nccl-tests");
  app->footer(
      "Starts reducers and workers on this host, uses running reducers (--connect), or runs one worker of a "
      "run on several hosts (--rank):\n"
      "  sluice bench allreduce --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 -b 1M -e 64M "
      "-f 2\n"
      "Exit 2: wrong data, or bandwidth below --min-bw.");
  struct Flags {
    WorkerFlags worker{4};
    NcclFlags nccl;
  };
  auto flags = std::make_shared<Flags>();
  OptionSet set(*app);
  flags->nccl.add_to(set, *app);
  flags->worker.add_to(set);
  run_when_selected(*app, chosen, flags, [&arguments](const Flags& f) {
    bench::AllreduceOptions options = f.nccl.options();
    if (options.plugin.use) f.worker.require_own_hosts("--through-plugin", "NCCL sums inside a host itself");
    if (!f.worker.is_worker()) {
      bench::LaunchOptions launch = f.worker.launch(arguments);
      if (launch.deadline == 0) launch.deadline = f.nccl.timeout();
      return bench::launch(launch);
    }
    options.arguments = arguments;
    options.environment = bench::recorded_environment();  // before worker() adds to it
    return bench::run_allreduce(options, f.worker.worker());
  });
}

struct LatencyFlags {
  // One reducer and progress in the caller, like the TCP star that the results are compared with.
  WorkerFlags worker{4, "1", 0};
  bench::LatencyOptions options;
  bool with_star = false;
};

int run_latency(const LatencyFlags& flags, const Arguments& arguments) {
  bench::check(flags.options);
  if (flags.worker.is_worker()) {
    if (flags.with_star && flags.options.star.empty()) {
      throw Failure(bench::kExitUsage,
                    "--with-star requires workers started by this command; with --rank use --star");
    }
    return bench::run_latency(flags.options, flags.worker.worker());
  }
  bench::LaunchOptions launch = flags.worker.launch(arguments);
  if (flags.with_star && (!launch.connect.empty() || !flags.options.star.empty())) {
    throw Failure(bench::kExitUsage,
                  "--with-star requires reducers started by this command; with running reducers, start "
                  "`sluice bench star-server` and set --star");
  }
  launch.star = flags.with_star;
  return bench::launch(launch);
}

void add_latency(CLI::App& bench, Command& chosen, const Arguments& arguments) {
  CLI::App* app = bench.add_subcommand(
      "latency", "measure median, p99 and p99.9 of small allreduces, compared with a plain TCP star");
  app->footer(
      "On one machine:\n"
      "  sluice bench latency --workers 4 --with-star\n"
      "On several hosts, with the star on the host of the first reducer, and the second command once per "
      "rank:\n"
      "  sluice bench star-server --listen 10.0.0.1:7471\n"
      "  sluice bench latency --connect 10.0.0.1:7470 --star 10.0.0.1:7471 --session $HEX --workers 4 --rank "
      "0\n"
      "Exit 2: wrong data.");
  auto flags = std::make_shared<LatencyFlags>();
  bench::LatencyOptions& o = flags->options;
  OptionSet set(*app);
  set.group("Measurement");
  set.size("-b,--minbytes", o.min_bytes, "first size");
  set.size("-e,--maxbytes", o.max_bytes, "last size");
  set.number("-f,--stepfactor", o.step_factor, "factor between sizes");
  set.number("-n,--iters", o.iterations, "timed operations per size, of Sluice and of the star");
  set.number("-w,--warmup_iters", o.warmup, "untimed operations before each batch");
  set.number("--batch", o.batch, "operations of Sluice in a row before a batch of the star");
  set.text("--star", o.star, "HOST:PORT", "also measure this TCP star (sluice bench star-server)");
  set.flag("--with-star", flags->with_star, "also start and measure a TCP star on this host");
  add_output_options(set, o.json, o.csv);
  flags->worker.add_to(set);
  run_when_selected(*app, chosen, flags,
                    [&arguments](const LatencyFlags& f) { return run_latency(f, arguments); });
}

void add_link(CLI::App& bench, Command& chosen, const Arguments& arguments) {
  CLI::App* app = bench.add_subcommand(
      "link", "measure the bandwidth between each worker and each reducer, and find slow hosts");
  app->footer(
      "Starts reducers and workers on this host, or runs one worker of a run on several hosts (--rank):\n"
      "  sluice bench link --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 --fail-slow\n"
      "A host is reported as slow when all its pairs are slow; a single slow pair is reported as a slow "
      "path.\n"
      "Exit 2: wrong data, or a slow link with --fail-slow.");
  struct Flags {
    WorkerFlags worker{4};
    bench::LinkOptions options;
  };
  auto flags = std::make_shared<Flags>();
  bench::LinkOptions& o = flags->options;
  OptionSet set(*app);
  set.group("Measurement");
  set.size("--size", o.bytes, "bytes of one allreduce");
  set.number("-n,--iters", o.iterations, "timed allreduces per pair; the result is their median");
  set.number("-w,--warmup_iters", o.warmup, "untimed allreduces before them");
  set.number("--slow", o.slow, "threshold for a slow pair, as a fraction of the median of all pairs, 0..1");
  set.flag("--fail-slow", o.fail_slow, "exit 2 when a link is slow");
  add_output_options(set, o.json, o.csv);
  flags->worker.add_to(set);
  const CLI::App* program = bench.get_parent();
  run_when_selected(*app, chosen, flags, [&arguments, program](const Flags& f) {
    bench::check(f.options);
    f.worker.require_reducers("bench link");
    f.worker.require_own_hosts("bench link", "it measures one worker after another");
    if (!f.worker.is_worker()) return bench::launch(f.worker.launch(arguments));
    // The lines of a session for each pair would interrupt the table.
    if (program->count("--log-level") == 0 && std::getenv("SLUICE_LOG_LEVEL") == nullptr)
      set_log_level("warn");
    return bench::run_link(f.options, f.worker.worker());
  });
}

void add_soak(CLI::App& bench, Command& chosen, const Arguments& arguments) {
  CLI::App* app =
      bench.add_subcommand("soak", "run random operations for a long time and check every result");
  app->footer(
      "Starts reducers and workers on this host, or runs one worker of a run on several hosts (--rank):\n"
      "  sluice bench soak --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 --duration 8h\n"
      "SIGINT or SIGTERM to the launcher or to any worker ends the whole run and prints the summary; a "
      "second signal ends it at once.\n"
      "Exit 2: wrong data, or memory that grew by more than --max-growth.");
  struct Flags {
    WorkerFlags worker{4};
    bench::SoakOptions options;
  };
  auto flags = std::make_shared<Flags>();
  bench::SoakOptions& o = flags->options;
  OptionSet set(*app);
  set.group("Workload");
  set.duration("--duration", o.duration, "time to run; 0: until interrupted");
  set.number("--seed", o.seed,
             "seed of types, operators, sizes and data; 0: a random seed, which is printed");
  set.size("--max-size", o.max_bytes, "largest operation");
  set.number("--open", o.open, "limit of operations in flight");
  set.group("Output");
  set.duration("--interval", o.interval, "interval between progress lines");
  set.size(
      "--max-growth", o.max_growth,
      "exit 2 when a worker's RSS grows by more than this after the first tenth of the run; 0: no limit");
  set.output_file("--json", o.json, "write results as JSON");
  set.output_file("--csv", o.csv, "write the progress lines as CSV with raw numbers");
  flags->worker.add_to(set);
  run_when_selected(*app, chosen, flags, [&arguments](const Flags& f) {
    bench::check(f.options);
    if (f.worker.is_worker()) return bench::run_soak(f.options, f.worker.worker());
    bench::LaunchOptions launch = f.worker.launch(arguments);
    launch.stops_gracefully = true;
    return bench::launch(launch);
  });
}

}  // namespace

void add_bench_commands(CLI::App& program, Command& chosen, const Arguments& arguments) {
  CLI::App* bench = program.add_subcommand("bench", "run benchmarks; every run also checks its results");
  bench->require_subcommand(1);
  add_allreduce(*bench, chosen, arguments);
  add_latency(*bench, chosen, arguments);
  add_link(*bench, chosen, arguments);
  add_bench_reduce(*bench, chosen);
  add_bench_replay(*bench, chosen, arguments);
  add_soak(*bench, chosen, arguments);
  add_bench_star(*bench, chosen);
}

}  // namespace sluice::cli
