// Program `sluice`. Its subcommands are in cli/commands/.
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/commands/pool/pool_commands.h"
#include "cli/options/option_set.h"
#include "cli/process/program.h"
#include "cli/process/version.h"

int main(int argc, char** argv) {
  using namespace sluice;
  CLI::App program(
      "Sluice: a reduction server for distributed training.\nEvery option --foo-bar is also variable "
      "SLUICE_FOO_BAR; the command line has precedence. Sizes: 64K, 4M, 1G (powers of 1024). Durations: "
      "500ms, 10s.",
      "sluice");
  program.set_version_flag("--version", cli::version_text,
                           "print version, revision, protocol range, compiler and kernel targets");
  program.require_subcommand(1);
  cli::LogFlags log;
  cli::OptionSet set(program);
  cli::add_log_options(set, log);

  cli::Command chosen;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const int own_arguments = cli::arguments_before_auto(argc, argv);
  cli::add_reducer_command(program, chosen, log);
  cli::add_auto_command(program, chosen, {argv + own_arguments, argv + argc});
  cli::add_discover_command(program, chosen);
  cli::add_keygen_command(program, chosen);
  cli::add_status_command(program, chosen);
  cli::add_store_commands(program, chosen);
  cli::add_top_command(program, chosen);
  cli::add_blackbox_command(program, chosen);
  cli::add_trace_commands(program, chosen);
  cli::add_bits_command(program, chosen);
  cli::add_check_command(program, chosen);
  cli::add_wait_command(program, chosen);
  cli::add_drain_command(program, chosen);
  cli::add_install_command(program, chosen);
  cli::add_plan_command(program, chosen);
  cli::add_bench_commands(program, chosen, arguments);
  cli::add_demo_commands(program, chosen, arguments);
  cli::add_description_commands(program, chosen);

  return cli::run_program(program, own_arguments, argv, log, chosen);
}
