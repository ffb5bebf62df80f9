// `sluice-gpu-bench`: launches reducers and workers here, or is one of the workers (bench/gpu/gpu_bench.h).
#include <string>
#include <vector>

#include "bench/e2e/launcher.h"
#include "bench/gpu/gpu_bench.h"
#include "cli/commands.h"
#include "cli/gpu_bench_flags.h"
#include "cli/option_set.h"
#include "cli/program.h"
#include "cli/worker_flags.h"

int main(int argc, char** argv) {
  using namespace sluice;
  CLI::App program(
      "GB/s of allreduces on a GPU's streams, end to end and stage by stage: device to host, network, host "
      "to "
      "device.\nEvery option --foo-bar is also variable SLUICE_FOO_BAR; the command line goes first. Sizes: "
      "64K, 4M, 1G (powers of 1024).",
      "sluice-gpu-bench");
  program.footer(
      "Starts reducers and workers here, joins running reducers (--connect), or is one worker of a run on "
      "several hosts:\n"
      "  sluice-gpu-bench --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 -b 1M -e 256M -f 4\n"
      "Exit 2: wrong data, or above --max-ratio. Exit 69: a GPU was asked for and there is none.");
  program.set_version_flag("--version", cli::version_text,
                           "print version, protocol range, compiler and kernel targets");
  cli::LogFlags log;
  cli::GpuBenchFlags flags;
  cli::WorkerFlags workers(2);
  cli::OptionSet set(program);
  cli::add_log_options(set, log);
  flags.add_to(set);
  workers.add_to(set);

  const std::vector<std::string> arguments(argv + 1, argv + argc);
  cli::Command chosen = [&]() -> int {
    bench::GpuBenchOptions options = flags.options();
    if (!workers.is_worker()) return bench::launch(workers.launch(arguments));
    options.arguments = arguments;
    return bench::run_gpu_bench(options, workers.worker());
  };
  // For those who package it.
  cli::add_description_commands(program, chosen);
  program.get_subcommand("completion")->group("");
  program.get_subcommand("man")->group("");
  // What the launcher starts for a run of its own; people have `sluice reducer`.
  cli::add_reducer_command(program, chosen, log);
  program.get_subcommand("reducer")->group("");
  return cli::run_program(program, argc, argv, log, chosen);
}
