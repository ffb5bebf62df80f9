// Implements `sluice bench link`.
#include "bench/e2e/link/link_bench.h"

#include <memory>

#include "bench/e2e/process/launcher.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"

namespace sluice::cli {

void add_bench_link(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
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
  set.group("Output");
  set.text("--json", o.json, "FILE", "write results as JSON");
  set.text("--csv", o.csv, "FILE", "write results as CSV with raw numbers");
  flags->worker.add_to(set);
  app->callback([flags, &chosen, &arguments] {
    chosen = [flags, &arguments]() -> int {
      bench::check(flags->options);
      if (!flags->worker.is_worker()) return bench::launch(flags->worker.launch(arguments));
      return bench::run_link(flags->options, flags->worker.worker());
    };
  });
}

}  // namespace sluice::cli
