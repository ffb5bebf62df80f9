// `sluice bench latency`
#include "bench/e2e/latency_bench.h"

#include <memory>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/launcher.h"
#include "cli/bench_commands.h"
#include "cli/option_set.h"
#include "cli/worker_flags.h"

namespace sluice::cli {
namespace {

struct LatencyFlags {
  // One reducer and progress by the caller: what the bare star beside it has.
  WorkerFlags worker{4, "1", 0};
  bench::LatencyOptions options;
  bool with_star = false;
};

int run(const LatencyFlags& flags, const std::vector<std::string>& arguments) {
  bench::check(flags.options);
  if (flags.worker.is_worker()) {
    if (flags.with_star && flags.options.star.empty()) {
      throw bench::Failure(bench::kExitUsage,
                           "--with-star starts a star for workers started here; a --rank needs --star");
    }
    return bench::run_latency(flags.options, flags.worker.worker());
  }
  bench::LaunchOptions launch = flags.worker.launch(arguments);
  if (flags.with_star && (!launch.connect.empty() || !flags.options.star.empty())) {
    throw bench::Failure(
        bench::kExitUsage,
        "--with-star is for reducers started here; beside running ones start `sluice bench star-server`, "
        "and name it with --star");
  }
  launch.star = flags.with_star;
  return bench::launch(launch);
}

}  // namespace

void add_bench_latency(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app = bench.add_subcommand(
      "latency", "median, p99 and p99.9 of small allreduces, beside those of a bare TCP star");
  app->footer(
      "On one machine:\n"
      "  sluice bench latency --workers 4 --with-star\n"
      "On several hosts, the star beside the first reducer, and the second line for each rank:\n"
      "  sluice bench star-server --listen 10.0.0.1:7471\n"
      "  sluice bench latency --connect 10.0.0.1:7470 --star 10.0.0.1:7471 --session $HEX --workers 4 --rank "
      "0\n"
      "Exit 2: wrong data.");
  auto flags = std::make_shared<LatencyFlags>();
  bench::LatencyOptions& o = flags->options;
  OptionSet set(*app);
  set.group("What to measure");
  set.size("-b,--minbytes", o.min_bytes, "size to start with");
  set.size("-e,--maxbytes", o.max_bytes, "size to end with");
  set.number("-f,--stepfactor", o.step_factor, "multiplication factor between sizes");
  set.number("-n,--iters", o.iterations, "timed operations of each size, and of the star");
  set.number("-w,--warmup_iters", o.warmup, "untimed operations before each batch");
  set.number("--batch", o.batch, "operations in a row, before it is the star's turn");
  set.text("--star", o.star, "HOST:PORT", "measure this bare star too (sluice bench star-server)");
  set.flag("--with-star", flags->with_star, "start a star here and measure it too");
  set.group("What to tell");
  set.text("--json", o.json, "FILE", "results");
  set.text("--csv", o.csv, "FILE", "results, raw numbers");
  flags->worker.add_to(set);
  app->callback(
      [flags, &chosen, &arguments] { chosen = [flags, &arguments] { return run(*flags, arguments); }; });
}

}  // namespace sluice::cli
