#include "cli/process/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>

#include "bench/e2e/process/exit_codes.h"
#include "cli/options/configuration.h"
#include "cli/options/configuration_text.h"
#include "cli/process/logging.h"
#include "config/host/writable_path.h"
#include "config/nearest_name.h"
#include "config/printable_text.h"
#include "core/parse_number.h"

namespace sluice::cli {
namespace {

// Returns the innermost selected subcommand, whose --help describes the options.
std::string selected_subcommand(const CLI::App& app) {
  const auto selected = app.get_subcommands();
  return selected.empty() ? "" : " " + selected.front()->get_name() + selected_subcommand(*selected.front());
}

// Returns what is wrong with a command line that `error` describes. CLI11 says of a misspelled command only
// that one is required.
std::string parse_error_text(const CLI::App& app, const CLI::ParseError& error) {
  const auto selected = app.get_subcommands();
  if (!selected.empty()) return parse_error_text(*selected.front(), error);
  const std::vector<std::string> rest = app.remaining();
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || rest.empty() || rest.front().starts_with('-')) return error.what();
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  const std::vector<std::string_view> known(names.begin(), names.end());
  return fmt::format("unknown command {}; did you mean \"{}\"?", config::in_quotes(rest.front()),
                     config::nearest_name(rest.front(), known));
}

// Restores what the OptionSet constructor hides from CLI11's parser, so that CLI11 prints it.
void show_variables_in_help() {
  for (const auto& set : selected_options()) {
    for (const DeclaredOption& option : set->all)
      option.option->envname(option.variable)->required(option.required);
  }
}

// A results' file that cannot be written is an error before the run, not after it. Only the first rank of a
// run on several hosts writes it; the folder need not exist at the others.
void check_output_files() {
  for (const auto& set : selected_options()) {
    const auto rank = std::ranges::find(set->all, "--rank", &DeclaredOption::name);
    if (rank != set->all.end() && parse_number<uint32_t>(rank->current().front()).value_or(0) > 0) continue;
    for (const DeclaredOption& option : set->all) {
      if (!option.is_output_file || option.current().front().empty()) continue;
      const auto checked = config::check_output_file(option.current().front());
      if (!checked)
        throw bench::Failure(option.origin == Origin::kCommandLine ? bench::kExitUsage : bench::kExitConfig,
                             assignment_text(option, option.current()) + ": " + checked.error().text);
    }
  }
}

int report_failure(const std::string& name, const bench::Failure& e, const std::string& hint) {
  std::fprintf(stderr, "%s\n", with_error_priority(name + ": " + e.what() + hint).c_str());
  return e.code();
}

}  // namespace

void add_log_options(OptionSet& set, LogFlags& flags) {
  set.group("Logging");
  set.reloadable().choice("--log-level", flags.level, "LEVEL", {"debug", "info", "warn", "error"},
                          "lowest level of log messages to write");
  set.choice("--log-format", flags.format, "FORMAT", {"logfmt", "json"}, "format of log lines");
}

int print_help_or_version(CLI::App& program, const CLI::Success& request) {
  show_variables_in_help();
  return program.exit(request);
}

int run_program(CLI::App& program, int argc, char** argv, const LogFlags& log, const Command& command) {
  const std::string name = program.get_name();
  const auto hint = [&] { return " (see " + name + selected_subcommand(program) + " --help)"; };
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return print_help_or_version(program, e);
  } catch (const CLI::ParseError& e) {
    return report_failure(name, bench::Failure(bench::kExitUsage, parse_error_text(program, e)), hint());
  }
  Configuration configuration(selected_options());
  try {
    configuration.load();
    if (print_if_requested(configuration)) return bench::kExitOk;
  } catch (const bench::Failure& e) {
    return report_failure(name, e, e.code() == bench::kExitUsage ? hint() : "");
  }
  try {
    start_logging(log.level, log.format);
    check_output_files();
    return command();
  } catch (const bench::Failure& e) {
    return report_failure(name, e, "");
  } catch (const std::exception& e) {
    return report_failure(name, bench::Failure(bench::kExitFailure, e.what()), "");
  }
}

}  // namespace sluice::cli
