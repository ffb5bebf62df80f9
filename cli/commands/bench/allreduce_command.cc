// Implements `sluice bench allreduce`.
#include "bench/e2e/allreduce/allreduce_bench.h"

#include <memory>

#include "bench/e2e/process/launcher.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/options/nccl_flags.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"

namespace sluice::cli {

void add_bench_allreduce(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app = bench.add_subcommand(
      "allreduce", "measure allreduce over reducers, with the options and the output of nccl-tests");
  app->footer(
      "Starts reducers and workers on this host, uses running reducers (--connect), or runs one worker of a "
      "run on "
      "several hosts (--rank):\n"
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
  app->callback([flags, &chosen, &arguments] {
    chosen = [flags, &arguments]() -> int {
      bench::AllreduceOptions options = flags->nccl.options();
      if (!flags->worker.is_worker()) {
        bench::LaunchOptions launch = flags->worker.launch(arguments);
        if (launch.deadline == 0) launch.deadline = flags->nccl.timeout();
        return bench::launch(launch);
      }
      options.arguments = arguments;
      return bench::run_allreduce(options, flags->worker.worker());
    };
  });
}

}  // namespace sluice::cli
