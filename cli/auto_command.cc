// `sluice auto [REDUCER OPTIONS] -- COMMAND ...`: one entry point for all hosts of a job, where the platform
// gives all of them one image and one script. The hosts that are reducers become one, the others run COMMAND.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

// What stands behind the user's own word: an option, then the variable, go before it.
void set_default(const char* variable, const std::string& value) {
  const char* const set = std::getenv(variable);
  if (set == nullptr || *set == '\0') ::setenv(variable, value.c_str(), 1);
}

// There the job is over when the last host's process ends; elsewhere the platform ends the reducers.
bool waits_for_every_host(Source source) {
  return source == Source::kSageMaker || source == Source::kSlurm;
}

// `sluice reducer` with these options.
struct ReducerProgram {
  CLI::App program{"", "sluice"};
  Command chosen;
  std::unique_ptr<Configuration> configuration;
};

// Throws Failure(kExitUsage), or CLI::Success for --help. Variables and a file are not looked at: most hosts
// become none.
std::unique_ptr<ReducerProgram> parse_reducer(const std::vector<std::string>& options, const LogFlags& log) {
  auto reducer = std::make_unique<ReducerProgram>();
  add_reducer_command(reducer->program, reducer->chosen, log);
  std::vector<std::string> reversed(options.rbegin(), options.rend());  // as CLI11 takes them
  reversed.emplace_back("reducer");
  try {
    reducer->program.parse(reversed);
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& e) {
    throw Failure(bench::kExitUsage, fmt::format("{} (see sluice reducer --help)", e.what()));
  }
  if (!reducer->chosen)
    throw Failure(bench::kExitUsage, fmt::format("no option may stand there: {}", kUsage));
  // With what the program itself was given.
  reducer->configuration = std::make_unique<Configuration>(picked_options());
  return reducer;
}

int be_reducer(const Found& found, ReducerProgram& reducer, const LogFlags& log) {
  set_default("SLUICE_LISTEN", fmt::format("*:{}", found.reducers[*found.index].port));
  if (waits_for_every_host(found.source) && found.workers != 0) {
    set_default("SLUICE_MODE", "job");
    set_default("SLUICE_EXPECTED_WORKERS", std::to_string(found.workers));
  }
  reducer.configuration->load();
  if (print_if_asked(*reducer.configuration)) return bench::kExitOk;
  set_log_level(log.level);  // a file may say another
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

int run_auto(const std::vector<std::string>& rest, const LogFlags& log) {
  const AutoArguments arguments = split(rest);
  // On all hosts, not only on those that become reducers: else a slip shows in a log that few look at.
  const auto reducer = parse_reducer(arguments.options, log);
  const auto outcome = discover_here("");
  if (!outcome.found) {
    // One host of a job that has no reducers is a host that trains. Who names a source means it.
    const char* const wanted = std::getenv("SLUICE_DISCOVERY");
    const bool is_named = wanted != nullptr && *wanted != '\0' && std::strcmp(wanted, "auto") != 0 &&
                          std::strcmp(wanted, "none") != 0;
    if (is_named) throw Failure(bench::kExitUnavailable, "no reducers found; " + words_on_passed(outcome));
    log::warn(fmt::format("no reducers found, {} runs without; {}", arguments.command[0],
                          words_on_passed(outcome)));
    run_command(arguments.command);
  }
  const Found& found = *outcome.found;
  log::info(words_on(found));
  if (found.role == Role::kReducer) return be_reducer(found, *reducer, log);
  set_default("SLUICE_REDUCERS", list_of(found));
  if (!found.job.empty()) set_default("SLUICE_JOB_ID", found.job);
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

void add_auto_command(CLI::App& program, Command& chosen, std::vector<std::string> rest,
                      const LogFlags& log) {
  CLI::App* app = program.add_subcommand(
      "auto", "be a reducer, or run a command, as the platform says of this host: " + std::string(kUsage));
  app->footer(
      "REDUCER OPTIONS are those of `sluice reducer`; a reducer listens on all addresses, at the port that "
      "its own entry has, and that takes SLUICE_KEY_FILE, which COMMAND's workers read too, --key-file or "
      "--insecure.\n"
      "On SageMaker and in Slurm's jobs it ends with the job (--mode job), elsewhere the platform ends it.\n"
      "COMMAND gets SLUICE_REDUCERS and SLUICE_JOB_ID; what is set already stays.\n"
      "Exit: that of the reducer or the command; 69: reducers are configured and not found; 78: what is "
      "configured is malformed; 126, 127: COMMAND can't be run, is not there.");
  app->callback(
      [rest = std::move(rest), &chosen, &log] { chosen = [rest, &log] { return run_auto(rest, log); }; });
}

}  // namespace sluice::cli
