#include "cli/program.h"

#include <cstdio>
#include <exception>

#include "bench/e2e/exit_codes.h"
#include "cli/configuration.h"
#include "cli/configuration_text.h"
#include "cli/logging.h"

namespace sluice::cli {
namespace {

// The deepest subcommand the user got to: whose --help would have told.
std::string asked_for(const CLI::App& app) {
  const auto picked = app.get_subcommands();
  return picked.empty() ? "" : " " + picked.front()->get_name() + asked_for(*picked.front());
}

// CLI11 prints what it would read itself.
void name_variables_in_help() {
  for (const auto& set : picked_options()) {
    for (const DeclaredOption& option : set->all)
      option.option->envname(option.variable)->required(option.required);
  }
}

int failed(const std::string& name, const bench::Failure& e, const std::string& hint) {
  std::fprintf(stderr, "%s: %s%s\n", name.c_str(), e.what(), hint.c_str());
  return e.code();
}

}  // namespace

void add_log_options(OptionSet& set, LogFlags& flags) {
  set.group("Logging");
  set.reloadable().choice("--log-level", flags.level, "LEVEL", {"debug", "info", "warn", "error"},
                          "least level that is logged");
  set.choice("--log-format", flags.format, "FORMAT", {"logfmt", "json"}, "what a line of the log looks like");
}

int print_what_was_asked(CLI::App& program, const CLI::Success& asked) {
  name_variables_in_help();
  return program.exit(asked);
}

int run_program(CLI::App& program, int argc, char** argv, const LogFlags& log, const Command& chosen) {
  const std::string name = program.get_name();
  const auto hint = [&] { return " (see " + name + asked_for(program) + " --help)"; };
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return print_what_was_asked(program, e);
  } catch (const CLI::ParseError& e) {
    return failed(name, bench::Failure(bench::kExitUsage, e.what()), hint());
  }
  Configuration configuration(picked_options());
  try {
    configuration.load();
    if (print_if_asked(configuration)) return bench::kExitOk;
  } catch (const bench::Failure& e) {
    return failed(name, e, e.code() == bench::kExitUsage ? hint() : "");
  }
  try {
    start_logging(log.level, log.format);
    return chosen();
  } catch (const bench::Failure& e) {
    return failed(name, e, "");
  } catch (const std::exception& e) {
    return failed(name, bench::Failure(bench::kExitFailure, e.what()), "");
  }
}

}  // namespace sluice::cli
