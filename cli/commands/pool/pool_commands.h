// Declares the commands that operate a pool, like commands.h.
#pragma once

#include "cli/commands/commands.h"

namespace sluice::cli {

// Adds `pool` to the command `check`.
void add_check_pool_command(CLI::App& check, Command& chosen);
void add_wait_command(CLI::App& program, Command& chosen);
void add_drain_command(CLI::App& program, Command& chosen);

}  // namespace sluice::cli
