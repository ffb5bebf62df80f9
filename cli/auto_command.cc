// `sluice auto [REDUCER OPTIONS] -- COMMAND ...`: one entry point for all hosts of a job, where the platform
// gives all of them one image and one script. The hosts that are reducers become one, the others run COMMAND.
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

#include "bench/e2e/exit_codes.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/configuration_text.h"
#include "cli/discovery.h"
#include "cli/logging.h"
#include "cli/option_set.h"
#include "cli/program.h"
#include "core/log.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using config::discovery::Found;
using config::discovery::Role;
using config::discovery::Source;

constexpr const char* kUsage = "sluice auto [REDUCER OPTIONS] -- COMMAND [ARGUMENT...]";

struct AutoArguments {
  std::vector<std::string> options;
  std::vector<std::string> command;
};

AutoArguments split(const std::vector<std::string>& rest) {
  const auto mark = std::ranges::find(rest, "--");
  if (mark == rest.end() || mark + 1 == rest.end())
    throw Failure(bench::kExitUsage, fmt::format("a command is missing: {}", kUsage));
  return {.options = {rest.begin(), mark}, .command = {mark + 1, rest.end()}};
}

// What COMMAND gets, where the user has not set it already.
void export_unless_set(const char* variable, const std::string& value) {
  const char* const set = std::getenv(variable);
  if (set == nullptr || *set == '\0') ::setenv(variable, value.c_str(), 1);
}

// There the job is over when the last host's process ends; elsewhere the platform ends the reducers.
bool waits_for_every_host(Source source) {
  return source == Source::kSageMaker || source == Source::kSlurm;
}

// The first process of a container is not ended by a signal that nobody handles, and a name server may take a
// minute. exec() takes the handler away, a reducer blocks the signals (StopSignals).
void end_by_signals() {
  for (const int number : {SIGTERM, SIGINT}) {
    struct sigaction before {};
    (void)::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_DFL) continue;  // a shell's `&` ignores SIGINT, for COMMAND too
    struct sigaction ends {};
    ends.sa_handler = [](int which) { ::_exit(128 + which); };
    (void)::sigaction(number, &ends, nullptr);
  }
}

// `sluice reducer` with these options.
struct ReducerProgram {
  CLI::App program{"", "sluice"};
  LogFlags log;
  Command chosen;
  std::unique_ptr<Configuration> configuration;

  [[nodiscard]] bool only_asked() const {
    return configuration->by_file()->check || !configuration->by_file()->print.empty();
  }
};

// What stands before `auto`, as if it stood behind it.
std::vector<std::string> given_before() {
  std::vector<std::string> words;
  for (const auto& set : picked_options()) {
    for (const DeclaredOption& option : set->all) {
      if (option.origin == Origin::kCommandLine) words.push_back(option.name + "=" + option.current().back());
    }
  }
  return words;
}

// Throws Failure(kExitUsage), or CLI::Success for --help. Variables and a file are not looked at: most hosts
// become none.
void parse_reducer(ReducerProgram& reducer, const std::vector<std::string>& options) {
  std::vector<std::string> words = given_before();
  words.emplace_back("reducer");
  words.insert(words.end(), options.begin(), options.end());
  std::ranges::reverse(words);  // as CLI11 takes them
  const auto programs_own = static_cast<std::ptrdiff_t>(picked_options().size());
  OptionSet set(reducer.program);
  add_log_options(set, reducer.log);
  add_reducer_command(reducer.program, reducer.chosen, reducer.log);
  try {
    reducer.program.parse(words);
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& e) {
    throw Failure(bench::kExitUsage, fmt::format("{} (see sluice reducer --help)", e.what()));
  }
  if (!reducer.chosen) throw Failure(bench::kExitUsage, fmt::format("no option may stand there: {}", kUsage));
  const auto& picked = picked_options();
  reducer.configuration = std::make_unique<Configuration>(
      std::vector<std::shared_ptr<DeclaredOptions>>(picked.begin() + programs_own, picked.end()));
  // From here on; a file may say another, which only a reducer reads.
  if (reducer.program.count("--log-level") != 0) set_log_level(reducer.log.level);
  if (reducer.program.count("--log-format") != 0) set_log_format(reducer.log.format);
}

// As the platform has it, behind all that the user says.
void take_defaults(const Found& found, Configuration& configuration) {
  const size_t own = found.role == Role::kReducer ? *found.index : 0;
  if (own < found.reducers.size())
    configuration.set_default("--listen", fmt::format("*:{}", found.reducers[own].port));
  if (waits_for_every_host(found.source) && found.workers != 0) {
    configuration.set_default("--mode", "job");
    configuration.set_default("--expected-workers", std::to_string(found.workers));
  }
}

// Or what --print-config and --check-config ask, on whatever host. `found`: null where nobody knows of
// reducers.
int be_reducer(const Found* found, ReducerProgram& reducer) {
  Configuration& configuration = *reducer.configuration;
  if (found != nullptr) take_defaults(*found, configuration);
  configuration.load();
  if (print_if_asked(configuration)) return bench::kExitOk;
  set_log_level(reducer.log.level);
  set_log_format(reducer.log.format);
  if (found != nullptr) log::info(words_on(*found));
  if (configuration.origin_of("--lanes") == Origin::kEnvironment) {
    log::warn(
        "SLUICE_LANES is the number of this reducer's threads, and where COMMAND runs that of a worker's "
        "connections; --lanes is the former alone");
  }
  return reducer.chosen();
}

// Does not return.
[[noreturn]] void run_command(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(argv[0], argv.data());
  const int code = errno == ENOENT ? bench::kExitNoCommand : bench::kExitCannotExecute;
  throw Failure(static_cast<bench::ExitCode>(code), fmt::format("{}: {}", command[0], std::strerror(errno)));
}

int run_auto(const std::vector<std::string>& rest) {
  const AutoArguments arguments = split(rest);
  // On all hosts, not only on those that become reducers: else a slip shows in a log that few look at.
  ReducerProgram reducer;
  try {
    parse_reducer(reducer, arguments.options);
  } catch (const CLI::Success& asked) {
    return print_what_was_asked(reducer.program, asked);
  }
  // The sample is the same everywhere.
  if (reducer.configuration->by_file()->print == "sample") return be_reducer(nullptr, reducer);
  end_by_signals();
  const auto outcome = discover_here("");
  if (!outcome.found) {
    // One host of a job that has no reducers is a host that trains. Who names a source means it.
    const char* const wanted = std::getenv("SLUICE_DISCOVERY");
    const bool is_named = wanted != nullptr && *wanted != '\0' && std::strcmp(wanted, "auto") != 0 &&
                          std::strcmp(wanted, "none") != 0;
    if (is_named) throw Failure(bench::kExitUnavailable, "no reducers found; " + words_on_passed(outcome));
    if (reducer.only_asked()) return be_reducer(nullptr, reducer);
    log::warn(fmt::format("no reducers found, {} runs without; {}", arguments.command[0],
                          words_on_passed(outcome)));
    run_command(arguments.command);
  }
  const Found& found = *outcome.found;
  if (found.role == Role::kReducer || reducer.only_asked()) return be_reducer(&found, reducer);
  log::info(words_on(found));
  export_unless_set("SLUICE_REDUCERS", list_of(found));
  if (!found.job.empty()) export_unless_set("SLUICE_JOB_ID", found.job);
  run_command(arguments.command);
}

}  // namespace

int arguments_before_auto(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--log-level" || word == "--log-format") {
      ++i;
    } else if (word == "auto") {
      const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
      return next == "--help" || next == "-h" ? argc : i + 1;
    } else if (!word.starts_with('-')) {
      break;
    }
  }
  return argc;
}

void add_auto_command(CLI::App& program, Command& chosen, std::vector<std::string> rest) {
  CLI::App* app = program.add_subcommand(
      "auto", "be a reducer, or run a command, as the platform says of this host: " + std::string(kUsage));
  app->footer(
      "REDUCER OPTIONS are those of `sluice reducer`; where none of them, no variable and no --config says "
      "another, a reducer listens on all addresses, at the port that its own entry has, and that takes "
      "SLUICE_KEY_FILE, which COMMAND's workers read too, --key-file or --insecure.\n"
      "--print-config and --check-config do so on every host, and COMMAND is not run.\n"
      "On SageMaker and in Slurm's jobs it ends with the job (--mode job), elsewhere the platform ends it.\n"
      "COMMAND gets SLUICE_REDUCERS and SLUICE_JOB_ID; what is set already stays.\n"
      "Exit: that of the reducer or the command; 69: reducers are configured and not found; 78: what is "
      "configured is malformed; 126, 127: COMMAND can't be run, is not there.");
  app->callback([rest = std::move(rest), &chosen] { chosen = [rest] { return run_auto(rest); }; });
}

}  // namespace sluice::cli
