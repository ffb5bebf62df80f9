// Implements `sluice bench soak`.
#include "bench/e2e/soak/soak_bench.h"

#include <memory>

#include "bench/e2e/process/launcher.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"

namespace sluice::cli {

void add_bench_soak(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app =
      bench.add_subcommand("soak", "run random operations for a long time and check every result");
  app->footer(
      "Starts reducers and workers on this host, or runs one worker of a run on several hosts (--rank):\n"
      "  sluice bench soak --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 --duration 8h\n"
      "SIGINT or SIGTERM to the launcher or to any worker ends the whole run and prints the summary; a "
      "second signal "
      "ends it at once.\nExit 2: wrong data, or memory that grew by more than --max-growth.");
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
  set.text("--json", o.json, "FILE", "write results as JSON");
  set.text("--csv", o.csv, "FILE", "write the progress lines as CSV with raw numbers");
  flags->worker.add_to(set);
  app->callback([flags, &chosen, &arguments] {
    chosen = [flags, &arguments]() -> int {
      bench::check(flags->options);
      if (flags->worker.is_worker()) return bench::run_soak(flags->options, flags->worker.worker());
      bench::LaunchOptions launch = flags->worker.launch(arguments);
      launch.stops_gracefully = true;
      return bench::launch(launch);
    };
  });
}

}  // namespace sluice::cli
