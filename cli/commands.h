// The subcommands of `sluice`, one file each. Each function adds its own to the program; when the user picked
// it, parsing leaves in `chosen` what to run. A command returns its exit code or throws (docs/exit-codes.md).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace sluice::cli {

using Command = std::function<int()>;

// Options of every command.
struct LogFlags {
  std::string level = "info";
  std::string format = "logfmt";
};

void add_discover_command(CLI::App& program, Command& chosen);
// `rest`: what stands behind `auto`. It holds another command's options, which the program's own parser must
// not see: arguments_before_auto() are how many of main()'s it may.
void add_auto_command(CLI::App& program, Command& chosen, std::vector<std::string> rest);
[[nodiscard]] int arguments_before_auto(int argc, char** argv);
// `log` outlives the run: SIGHUP may change it.
void add_reducer_command(CLI::App& program, Command& chosen, const LogFlags& log);
void add_keygen_command(CLI::App& program, Command& chosen);
void add_status_command(CLI::App& program, Command& chosen);
void add_top_command(CLI::App& program, Command& chosen);
void add_check_command(CLI::App& program, Command& chosen);
void add_install_command(CLI::App& program, Command& chosen);
void add_plan_command(CLI::App& program, Command& chosen);
// `arguments`: what the user typed after the program's name; launchers pass it on to their workers.
void add_bench_commands(CLI::App& program, Command& chosen, const std::vector<std::string>& arguments);
void add_demo_commands(CLI::App& program, Command& chosen, const std::vector<std::string>& arguments);

// `completion` and `man`, which tell of everything that `program` has when they run, whoever added it. It
// outlives the parse.
void add_description_commands(CLI::App& program, Command& chosen);

// What `sluice --version` prints: version, protocol range, compiler, kernel targets of this CPU.
[[nodiscard]] std::string version_text();
// "gcc 12.2.0".
[[nodiscard]] std::string compiler_text();

}  // namespace sluice::cli
