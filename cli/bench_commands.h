// The subcommands of `sluice bench`, one file each, as commands.h has those of `sluice`.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"

namespace sluice::cli {

void add_bench_allreduce(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
void add_bench_latency(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
void add_bench_link(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
void add_bench_reduce(CLI::App& bench, Command& chosen);
void add_bench_replay(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
void add_bench_soak(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments);
// `bench star`, `bench star-server`, and the worker that the first starts.
void add_bench_star(CLI::App& bench, Command& chosen);

}  // namespace sluice::cli
