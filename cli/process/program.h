// Runs a program: parses the command line, applies variables and the configuration file, and starts the log.
// A failure becomes one line on stderr and an exit code (docs/reference/configuration.md).
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands/commands.h"
#include "cli/options/option_set.h"

namespace sluice::cli {

// Adds --log-level and --log-format. `flags` must outlive the parse.
void add_log_options(OptionSet& set, LogFlags& flags);

// Prints the output of --help or --version. Returns the exit code.
int print_help_or_version(CLI::App& program, const CLI::Success& request);

// Parses the command line and runs the command that parsing stored in `command`, or prints help, version or
// configuration. Returns the exit code.
[[nodiscard]] int run_program(CLI::App& program, int argc, char** argv, const LogFlags& log,
                              const Command& command);

}  // namespace sluice::cli
