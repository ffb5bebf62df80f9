// `sluice bench soak`
#include "bench/e2e/soak_bench.h"

#include <memory>

#include "bench/e2e/launcher.h"
#include "cli/bench_commands.h"
#include "cli/option_set.h"
#include "cli/worker_flags.h"

namespace sluice::cli {

void add_bench_soak(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app = bench.add_subcommand("soak", "random operations for a long time, every result checked");
  app->footer(
      "Starts reducers and workers here, or is one worker of a run on several hosts:\n"
      "  sluice bench soak --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 --duration 8h\n"
      "SIGINT or SIGTERM, to the launcher or to any one worker, ends the run of all with its summary; a "
      "second "
      "one at once.\nExit 2: wrong data, or memory that grew by more than --max-growth.");
  struct Flags {
    WorkerFlags worker{4};
    bench::SoakOptions options;
  };
  auto flags = std::make_shared<Flags>();
  bench::SoakOptions& o = flags->options;
  OptionSet set(*app);
  set.group("What to do");
  set.duration("--duration", o.duration, "time to go on for; 0: until interrupted");
  set.number("--seed", o.seed, "of types, operators, sizes and data; 0: a random one, which is printed");
  set.size("--max-size", o.max_bytes, "largest operation");
  set.number("--open", o.open, "operations open at once, at most");
  set.group("What to tell");
  set.duration("--interval", o.interval, "between progress lines");
  set.size("--max-growth", o.max_growth,
           "exit 2 when a worker's RSS grows by more after the first tenth of the run; 0: any");
  set.text("--json", o.json, "FILE", "results");
  set.text("--csv", o.csv, "FILE", "the progress lines, raw numbers");
  flags->worker.add_to(set);
  app->callback([flags, &chosen, &arguments] {
    chosen = [flags, &arguments]() -> int {
      bench::check(flags->options);
      if (flags->worker.is_worker()) return bench::run_soak(flags->options, flags->worker.worker());
      bench::LaunchOptions launch = flags->worker.launch(arguments);
      launch.workers_stop = true;
      return bench::launch(launch);
    };
  });
}

}  // namespace sluice::cli
