// `sluice bench link`
#include "bench/e2e/link_bench.h"

#include <memory>

#include "bench/e2e/launcher.h"
#include "cli/bench_commands.h"
#include "cli/option_set.h"
#include "cli/worker_flags.h"

namespace sluice::cli {

void add_bench_link(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app =
      bench.add_subcommand("link", "bandwidth of each worker with each reducer, and who is the slow one");
  app->footer(
      "Starts reducers and workers here, or is one worker of a run on several hosts:\n"
      "  sluice bench link --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 --fail-slow\n"
      "A host is named when all its pairs are slow; one pair alone is named as the way between two hosts.\n"
      "Exit 2: wrong data, or a slow link with --fail-slow.");
  struct Flags {
    WorkerFlags worker{4};
    bench::LinkOptions options;
  };
  auto flags = std::make_shared<Flags>();
  bench::LinkOptions& o = flags->options;
  OptionSet set(*app);
  set.group("What to measure");
  set.size("--size", o.bytes, "bytes of one allreduce");
  set.number("-n,--iters", o.iterations, "timed allreduces of each pair; their median counts");
  set.number("-w,--warmup_iters", o.warmup, "untimed ones before them");
  set.number("--slow", o.slow, "a pair below this part of the median is slow, 0..1");
  set.flag("--fail-slow", o.fail_slow, "exit 2 when a link is slow");
  set.group("What to tell");
  set.text("--json", o.json, "FILE", "results");
  set.text("--csv", o.csv, "FILE", "results, raw numbers");
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
