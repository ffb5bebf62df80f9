// `sluice`: one program, subcommands in a file each (commands.h).
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/e2e/exit_codes.h"
#include "cli/commands.h"
#include "cli/logging.h"
#include "cli/option_set.h"

namespace {

// The deepest subcommand the user got to: whose --help would have told.
std::string asked_for(const CLI::App& app) {
  const auto picked = app.get_subcommands();
  return picked.empty() ? "" : " " + picked.front()->get_name() + asked_for(*picked.front());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sluice;
  CLI::App program(
      "Sluice: a reduction server for distributed training.\nEvery option --foo-bar is also variable "
      "SLUICE_FOO_BAR; the "
      "command line goes first. Sizes: 64K, 4M, 1G (powers of 1024). Times: 500ms, 10s.",
      "sluice");
  program.set_version_flag("--version", cli::version_text,
                           "print version, protocol range, compiler and kernel targets");
  program.require_subcommand(1);
  std::string log_level = "info";
  cli::OptionSet(program)
      .text("--log-level", log_level, "LEVEL", "least level that is logged: debug, info, warn, error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));

  cli::Command chosen;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  cli::add_reducer_command(program, chosen);
  cli::add_keygen_command(program, chosen);
  cli::add_status_command(program, chosen);
  cli::add_check_command(program, chosen);
  cli::add_install_command(program, chosen);
  cli::add_bench_commands(program, chosen, arguments);
  cli::add_demo_commands(program, chosen, arguments);

  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return program.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "sluice: %s (see sluice%s --help)\n", e.what(), asked_for(program).c_str());
    return bench::kExitUsage;
  }
  try {
    cli::start_logging(log_level);
    return chosen();
  } catch (const bench::Failure& e) {
    std::fprintf(stderr, "sluice: %s\n", e.what());
    return e.code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sluice: %s\n", e.what());
    return bench::kExitFailure;
  }
}
