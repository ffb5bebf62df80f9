// Declares the subcommands of `sluice bench` that have their own file (see cli/commands/commands.h).
#pragma once

#include <string>
#include <vector>

#include "cli/commands/commands.h"

namespace sluice::cli {

void add_bench_reduce(CLI::App& bench, Command& chosen);
void add_bench_replay(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
// Adds `bench star`, `bench star-server` and the internal `bench star-worker`.
void add_bench_star(CLI::App& bench, Command& chosen);

}  // namespace sluice::cli
