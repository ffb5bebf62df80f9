#include "cli/program.h"

#include <cstdio>
#include <exception>

#include "bench/e2e/exit_codes.h"
#include "cli/logging.h"

namespace sluice::cli {
namespace {

// The deepest subcommand the user got to: whose --help would have told.
std::string asked_for(const CLI::App& app) {
  const auto picked = app.get_subcommands();
  return picked.empty() ? "" : " " + picked.front()->get_name() + asked_for(*picked.front());
}

}  // namespace

void add_log_level(OptionSet& set, std::string& level) {
  level = "info";
  set.text("--log-level", level, "LEVEL", "least level that is logged: debug, info, warn, error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
}

int run_program(CLI::App& program, int argc, char** argv, const std::string& log_level,
                const Command& chosen) {
  const std::string name = program.get_name();
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return program.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "%s: %s (see %s%s --help)\n", name.c_str(), e.what(), name.c_str(),
                 asked_for(program).c_str());
    return bench::kExitUsage;
  }
  try {
    start_logging(log_level);
    return chosen();
  } catch (const bench::Failure& e) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    return e.code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    return bench::kExitFailure;
  }
}

}  // namespace sluice::cli
