// Implements `sluice auto [REDUCER OPTIONS] -- COMMAND ...`, the entry point of all hosts of a job. Some
// platforms start the same image and script on all hosts. Reducer hosts then run a reducer, all others run
// COMMAND.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "bench/e2e/process/exit_codes.h"
#include "cli/commands/commands.h"
#include "cli/commands/discovery_report.h"
#include "cli/options/configuration.h"
#include "cli/options/configuration_text.h"
#include "cli/options/option_set.h"
#include "cli/process/logging.h"
#include "cli/process/program.h"
#include "core/log.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using config::discovery::DiscoveryResult;
using config::discovery::Role;
using config::discovery::Source;

constexpr const char* kUsage = "sluice auto [REDUCER OPTIONS] -- COMMAND [ARGUMENT...]";

struct AutoArguments {
  std::vector<std::string> options;
  std::vector<std::string> command;
};

AutoArguments split(const std::vector<std::string>& rest) {
  const auto separator = std::ranges::find(rest, "--");
  if (separator == rest.end() || separator + 1 == rest.end())
    throw Failure(bench::kExitUsage, fmt::format("missing command; usage: {}", kUsage));
  return {.options = {rest.begin(), separator}, .command = {separator + 1, rest.end()}};
}

// Sets a variable for COMMAND unless the user has set it.
void export_unless_set(const char* variable, const std::string& value) {
  const char* const set = std::getenv(variable);
  if (set == nullptr || *set == '\0') ::setenv(variable, value.c_str(), 1);
}

// These platforms end a job when the processes of all hosts have ended; others stop the reducers.
bool waits_for_every_host(Source source) {
  return source == Source::kSageMaker || source == Source::kSlurm || source == Source::kJobHosts;
}

// Installs handlers for SIGTERM and SIGINT. The first process of a container ignores signals without a
// handler, and discovery may wait a minute for DNS. Later, exec() removes the handlers, or the reducer blocks
// the signals (SignalReceiver).
void exit_on_signals() {
  for (const int number : {SIGTERM, SIGINT}) {
    struct sigaction current {};
    (void)::sigaction(number, nullptr, &current);
    if (current.sa_handler != SIG_DFL) continue;  // a shell's `&` ignores SIGINT, also for COMMAND
    struct sigaction exit_action {};
    exit_action.sa_handler = [](int signal_number) { ::_exit(128 + signal_number); };
    (void)::sigaction(number, &exit_action, nullptr);
  }
}

// The program `sluice reducer` with the options of `sluice auto`.
struct ReducerProgram {
  CLI::App program{"", "sluice"};
  LogFlags log;
  Command chosen;
  std::unique_ptr<Configuration> configuration;

  // True for --print-config and --check-config, which do not run a reducer.
  [[nodiscard]] bool only_prints_or_checks() const {
    return configuration->config_file()->check || !configuration->config_file()->print.empty();
  }
};

// Returns the options before `auto`, so that they also apply to the reducer.
std::vector<std::string> options_before_auto() {
  std::vector<std::string> arguments;
  for (const auto& set : selected_options()) {
    for (const DeclaredOption& option : set->all) {
      if (option.origin == Origin::kCommandLine)
        arguments.push_back(option.name + "=" + option.current().back());
    }
  }
  return arguments;
}

// Throws Failure(kExitUsage), or CLI::Success for --help. Variables and the configuration file are not
// applied yet, because most hosts do not become a reducer.
void parse_reducer(ReducerProgram& reducer, const std::vector<std::string>& options) {
  std::vector<std::string> arguments = options_before_auto();
  arguments.emplace_back("reducer");
  arguments.insert(arguments.end(), options.begin(), options.end());
  std::ranges::reverse(arguments);  // CLI11 parses a vector from its end
  const auto program_sets = static_cast<std::ptrdiff_t>(selected_options().size());
  OptionSet set(reducer.program);
  add_log_options(set, reducer.log);
  add_reducer_command(reducer.program, reducer.chosen, reducer.log);
  try {
    reducer.program.parse(arguments);
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& e) {
    throw Failure(bench::kExitUsage, fmt::format("{} (see sluice reducer --help)", e.what()));
  }
  if (!reducer.chosen)
    throw Failure(bench::kExitUsage, fmt::format("option is not allowed here; usage: {}", kUsage));
  const auto& selected = selected_options();
  reducer.configuration = std::make_unique<Configuration>(
      std::vector<std::shared_ptr<DeclaredOptions>>(selected.begin() + program_sets, selected.end()));
  // Applies the command line now. The configuration file may override the defaults later, in a reducer only.
  if (reducer.program.count("--log-level") != 0) set_log_level(reducer.log.level);
  if (reducer.program.count("--log-format") != 0) set_log_format(reducer.log.format);
}

// Derives option defaults from the platform; the user's settings have precedence.
void set_platform_defaults(const DiscoveryResult& result, Configuration& configuration) {
  const size_t own = result.role == Role::kReducer ? *result.index : 0;
  if (own < result.reducers.size())
    configuration.set_default("--listen", fmt::format("*:{}", result.reducers[own].port));
  if (waits_for_every_host(result.source) && result.workers != 0) {
    configuration.set_default("--mode", "job");
    configuration.set_default("--expected-workers", std::to_string(result.workers));
  }
}

// Runs the reducer, or on any host --print-config and --check-config. `result` is null when discovery found
// no reducers.
int run_reducer_program(const DiscoveryResult* result, ReducerProgram& reducer) {
  Configuration& configuration = *reducer.configuration;
  if (result != nullptr) set_platform_defaults(*result, configuration);
  configuration.load();
  if (print_if_requested(configuration)) return bench::kExitOk;
  set_log_level(reducer.log.level);
  set_log_format(reducer.log.format);
  if (result != nullptr) log::info(discovery_text(*result));
  if (configuration.origin_of("--lanes") == Origin::kEnvironment) {
    log::warn(
        "SLUICE_LANES sets this reducer's lane threads, but on worker hosts it sets the connections per "
        "reducer; use --lanes for the reducer only");
  }
  return reducer.chosen();
}

// Does not return.
[[noreturn]] void run_command(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(argv[0], argv.data());
  const int code = errno == ENOENT ? bench::kExitNoCommand : bench::kExitCannotExecute;
  throw Failure(static_cast<bench::ExitCode>(code),
                fmt::format("cannot run {}: {}", command[0], std::strerror(errno)));
}

int run_auto(const std::vector<std::string>& rest) {
  const AutoArguments arguments = split(rest);
  // All hosts parse the reducer options, so that a usage error appears in every host's log.
  ReducerProgram reducer;
  try {
    parse_reducer(reducer, arguments.options);
  } catch (const CLI::Success& request) {
    return print_help_or_version(reducer.program, request);
  }
  // The sample and the table do not depend on discovery.
  if (const std::string& print = reducer.configuration->config_file()->print;
      print == "sample" || print == "markdown")
    return run_reducer_program(nullptr, reducer);
  exit_on_signals();
  const auto outcome = discover_or_fail("");
  if (!outcome.result) {
    // A job without reducers still trains. An explicitly requested source must find reducers.
    const char* const source = std::getenv("SLUICE_DISCOVERY");
    const bool is_requested = source != nullptr && *source != '\0' && std::strcmp(source, "auto") != 0 &&
                              std::strcmp(source, "none") != 0;
    if (is_requested)
      throw Failure(bench::kExitUnavailable, "no reducers found; " + skipped_sources_text(outcome));
    if (reducer.only_prints_or_checks()) return run_reducer_program(nullptr, reducer);
    log::warn(fmt::format("no reducers found, running {} without reducers; {}", arguments.command[0],
                          skipped_sources_text(outcome)));
    run_command(arguments.command);
  }
  const DiscoveryResult& result = *outcome.result;
  if (result.role == Role::kReducer || reducer.only_prints_or_checks())
    return run_reducer_program(&result, reducer);
  log::info(discovery_text(result));
  export_unless_set("SLUICE_REDUCERS", endpoint_list(result));
  if (!result.job.empty()) export_unless_set("SLUICE_JOB_ID", result.job);
  run_command(arguments.command);
}

}  // namespace

int arguments_before_auto(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--log-level" || argument == "--log-format") {
      ++i;
    } else if (argument == "auto") {
      const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
      return next == "--help" || next == "-h" ? argc : i + 1;
    } else if (!argument.starts_with('-')) {
      break;
    }
  }
  return argc;
}

void add_auto_command(CLI::App& program, Command& chosen, std::vector<std::string> rest) {
  CLI::App* app = program.add_subcommand(
      "auto",
      "run a reducer or a command, depending on this host's role on the platform: " + std::string(kUsage));
  app->footer(
      "REDUCER OPTIONS are those of `sluice reducer`. By default, a reducer listens on all addresses, on the "
      "port of its entry in the reducer list. This requires SLUICE_KEY_FILE, which COMMAND's workers also "
      "read, --key-file or --insecure.\n"
      "--print-config and --check-config work on every host and do not run COMMAND.\n"
      "On SageMaker and in Slurm jobs, a reducer exits with the job (--mode job). Other platforms stop the "
      "reducer.\n"
      "SLUICE_REDUCERS and SLUICE_JOB_ID are set for COMMAND unless they are already set.\n"
      "Exit: the exit code of the reducer or COMMAND. 69: the requested source found no reducers. 78: "
      "invalid configuration. 126: COMMAND cannot be executed. 127: COMMAND not found.");
  app->callback([rest = std::move(rest), &chosen] { chosen = [rest] { return run_auto(rest); }; });
}

}  // namespace sluice::cli
