// Implements `sluice bench latency`.
#include "bench/e2e/latency/latency_bench.h"

#include <memory>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/launcher.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"

namespace sluice::cli {
namespace {

struct LatencyFlags {
  // One reducer and progress in the caller, like the TCP star that the results are compared with.
  WorkerFlags worker{4, "1", 0};
  bench::LatencyOptions options;
  bool with_star = false;
};

int run(const LatencyFlags& flags, const std::vector<std::string>& arguments) {
  bench::check(flags.options);
  if (flags.worker.is_worker()) {
    if (flags.with_star && flags.options.star.empty()) {
      throw bench::Failure(bench::kExitUsage,
                           "--with-star requires workers started by this command; with --rank use --star");
    }
    return bench::run_latency(flags.options, flags.worker.worker());
  }
  bench::LaunchOptions launch = flags.worker.launch(arguments);
  if (flags.with_star && (!launch.connect.empty() || !flags.options.star.empty())) {
    throw bench::Failure(
        bench::kExitUsage,
        "--with-star requires reducers started by this command; with running reducers, start `sluice bench "
        "star-server` and set --star");
  }
  launch.star = flags.with_star;
  return bench::launch(launch);
}

}  // namespace

void add_bench_latency(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
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
  set.group("Output");
  set.text("--json", o.json, "FILE", "write results as JSON");
  set.text("--csv", o.csv, "FILE", "write results as CSV with raw numbers");
  flags->worker.add_to(set);
  app->callback(
      [flags, &chosen, &arguments] { chosen = [flags, &arguments] { return run(*flags, arguments); }; });
}

}  // namespace sluice::cli
