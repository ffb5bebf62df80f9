// Verbs of `sluice bench` that have a file of their own. As in commands.h: each adds itself to `bench` and
// leaves in `chosen` what to run.
#pragma once

#include "cli/commands.h"

namespace sluice::cli {

void add_bench_replay(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);

}  // namespace sluice::cli
