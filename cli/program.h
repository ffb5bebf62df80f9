// The frame of every program of this folder: its command line, variables and file, its log, and one line on
// stderr and an exit code for whatever ends it early (docs/exit-codes.md).
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/option_set.h"

namespace sluice::cli {

// --log-level and --log-format; `flags` outlives the parse.
void add_log_options(OptionSet& set, LogFlags& flags);

// --help, --version. Returns the exit code.
int print_what_was_asked(CLI::App& program, const CLI::Success& asked);

// Parses and runs what parsing has left in `chosen`, or prints what was asked for instead. Returns the exit
// code.
[[nodiscard]] int run_program(CLI::App& program, int argc, char** argv, const LogFlags& log,
                              const Command& chosen);

}  // namespace sluice::cli
