// Program `sluice-gpu-bench`: launches reducers and workers, or runs one worker (bench/gpu/gpu_bench.h).
#include <string>
#include <vector>

#include "bench/e2e/process/launcher.h"
#include "bench/gpu/gpu_bench.h"
#include "cli/commands/commands.h"
#include "cli/options/gpu_bench_flags.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"
#include "cli/process/program.h"
#include "cli/process/version.h"

int main(int argc, char** argv) {
  using namespace sluice;
  CLI::App program(
      "Measures allreduce on CUDA streams in GB/s, end to end and for each stage: device to host, network, "
      "host to device.\nEvery option --foo-bar is also variable SLUICE_FOO_BAR; the command line has "
      "precedence. Sizes: 64K, 4M, 1G (powers of 1024).",
      "sluice-gpu-bench");
  program.footer(
      "Starts reducers and workers on this host, uses running reducers (--connect), or runs one worker of a "
      "run on several hosts (--rank):\n"
      "  sluice-gpu-bench --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 -b 1M -e 256M -f 4\n"
      "Exit 2: wrong data, or a time above --max-ratio. Exit 69: a GPU was requested but none is available.");
  program.set_version_flag("--version", cli::version_text,
                           "print version, revision, protocol range, compiler and kernel targets");
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
  // Hidden commands for packagers.
  cli::add_description_commands(program, chosen);
  program.get_subcommand("completion")->group("");
  program.get_subcommand("man")->group("");
  // Hidden command that the launcher starts; users run `sluice reducer`.
  cli::add_reducer_command(program, chosen, log);
  program.get_subcommand("reducer")->group("");
  return cli::run_program(program, argc, argv, log, chosen);
}
