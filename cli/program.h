// The frame of every program of this folder: its command line, its log, and one line on stderr and an exit
// code for whatever ends it early (docs/exit-codes.md).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/option_set.h"

namespace sluice::cli {

// --log-level; `level` outlives the parse.
void add_log_level(OptionSet& set, std::string& level);

// Parses and runs what parsing has left in `chosen`. Returns the exit code.
[[nodiscard]] int run_program(CLI::App& program, int argc, char** argv, const std::string& log_level,
                              const Command& chosen);

}  // namespace sluice::cli
