// Declares the subcommands of `sluice bench`, one file each (see cli/commands/commands.h).
#pragma once

#include <string>
#include <vector>

#include "cli/commands/commands.h"

namespace sluice::cli {

void add_bench_allreduce(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
void add_bench_latency(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
void add_bench_link(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
void add_bench_reduce(CLI::App& bench, Command& chosen);
void add_bench_replay(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
void add_bench_soak(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
// Adds `bench star`, `bench star-server` and the internal `bench star-worker`.
void add_bench_star(CLI::App& bench, Command& chosen);

}  // namespace sluice::cli
