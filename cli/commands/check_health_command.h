// Declares `sluice check health`.
#pragma once

#include "cli/commands/commands.h"

namespace sluice::cli {

void add_check_health_command(CLI::App& check, Command& chosen);

}  // namespace sluice::cli
