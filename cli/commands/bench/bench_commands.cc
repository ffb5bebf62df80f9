#include "cli/commands/bench/bench_commands.h"

namespace sluice::cli {

void add_bench_commands(CLI::App& program, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* bench = program.add_subcommand("bench", "run benchmarks; every run also checks its results");
  bench->require_subcommand(1);
  add_bench_allreduce(*bench, chosen, arguments);
  add_bench_latency(*bench, chosen, arguments);
  add_bench_link(*bench, chosen, arguments);
  add_bench_reduce(*bench, chosen);
  add_bench_replay(*bench, chosen, arguments);
  add_bench_soak(*bench, chosen, arguments);
  add_bench_star(*bench, chosen);
}

}  // namespace sluice::cli
