// `sluice check health`.
#pragma once

#include "cli/commands.h"

namespace sluice::cli {

void add_check_health(CLI::App& check, Command& chosen);

}  // namespace sluice::cli
