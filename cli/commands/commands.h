// Declares the subcommands of `sluice`, one file each. Each function adds its subcommand to the program. When
// the command line selects it, the parser stores the function to run in `chosen`. A command returns its exit
// code or throws (docs/reference/configuration.md).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

using Command = std::function<int()>;

// The logging options of every command.
struct LogFlags {
  std::string level = "info";
  std::string format = "logfmt";
};

// Chooses `run`, a function of the parsed options, when the command line selects `app`.
template <typename Flags, typename Run>
void run_when_selected(CLI::App& app, Command& chosen, std::shared_ptr<Flags> flags, Run run) {
  app.callback([&chosen, flags = std::move(flags), run = std::move(run)] {
    chosen = [flags, run]() -> int { return run(*flags); };
  });
}

void add_discover_command(CLI::App& program, Command& chosen);
// `rest` are the arguments after `auto`. They contain options of `sluice reducer`, which the program's parser
// must not see.
void add_auto_command(CLI::App& program, Command& chosen, std::vector<std::string> rest);
// Returns how many of main()'s arguments the program's parser may see.
[[nodiscard]] int arguments_before_auto(int argc, char** argv);
// `log` must outlive the run, because SIGHUP may change it.
void add_reducer_command(CLI::App& program, Command& chosen, const LogFlags& log);
void add_keygen_command(CLI::App& program, Command& chosen);
void add_status_command(CLI::App& program, Command& chosen);
void add_store_commands(CLI::App& program, Command& chosen);
void add_top_command(CLI::App& program, Command& chosen);
void add_blackbox_command(CLI::App& program, Command& chosen);
void add_trace_commands(CLI::App& program, Command& chosen);
void add_bits_command(CLI::App& program, Command& chosen);
void add_check_command(CLI::App& program, Command& chosen);
// Adds `health` to the command `check`.
void add_check_health_command(CLI::App& check, Command& chosen);
void add_install_command(CLI::App& program, Command& chosen);
void add_plan_command(CLI::App& program, Command& chosen);
// `arguments` are the user's arguments after the program name; launchers pass them on to their workers.
void add_bench_commands(CLI::App& program, Command& chosen, const std::vector<std::string>& arguments);
void add_demo_commands(CLI::App& program, Command& chosen, const std::vector<std::string>& arguments);
// Adds `outer-steps` to the command `demo`.
void add_outer_steps_command(CLI::App& demo, Command& chosen, const std::vector<std::string>& arguments);

// Adds `completion` and `man`, which describe all commands that `program` has when they run. `program` must
// outlive the run.
void add_description_commands(CLI::App& program, Command& chosen);

}  // namespace sluice::cli
