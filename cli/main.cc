// `sluice`: one program, subcommands in a file each (commands.h).
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/option_set.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  using namespace sluice;
  CLI::App program(
      "Sluice: a reduction server for distributed training.\nEvery option --foo-bar is also variable "
      "SLUICE_FOO_BAR; the command line goes first. Sizes: 64K, 4M, 1G (powers of 1024). Times: 500ms, 10s.",
      "sluice");
  program.set_version_flag("--version", cli::version_text,
                           "print version, protocol range, compiler and kernel targets");
  program.require_subcommand(1);
  cli::LogFlags log;
  cli::OptionSet set(program);
  cli::add_log_options(set, log);

  cli::Command chosen;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const int own = cli::arguments_before_auto(argc, argv);
  cli::add_reducer_command(program, chosen, log);
  cli::add_auto_command(program, chosen, {argv + own, argv + argc});
  cli::add_discover_command(program, chosen);
  cli::add_keygen_command(program, chosen);
  cli::add_status_command(program, chosen);
  cli::add_top_command(program, chosen);
  cli::add_check_command(program, chosen);
  cli::add_install_command(program, chosen);
  cli::add_plan_command(program, chosen);
  cli::add_bench_commands(program, chosen, arguments);
  cli::add_demo_commands(program, chosen, arguments);
  cli::add_description_commands(program, chosen);

  return cli::run_program(program, own, argv, log, chosen);
}
