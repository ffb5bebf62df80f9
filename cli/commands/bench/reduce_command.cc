// Implements `sluice bench reduce`.
#include "bench/micro/reduce_bench.h"

#include <fmt/format.h>

#include <memory>

#include "bench/e2e/process/exit_codes.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/options/option_set.h"

namespace sluice::cli {
namespace {

using bench::Failure;

template <typename Name, typename Value>
void parse_names(const std::vector<std::string>& names, Name parse, std::vector<Value>& into,
                 const char* what) {
  for (const std::string& name : names) {
    const auto value = parse(name);
    if (!value) throw Failure(bench::kExitUsage, fmt::format("unknown {} \"{}\"", what, name));
    into.push_back(*value);
  }
}

}  // namespace

void add_bench_reduce(CLI::App& bench, Command& chosen) {
  CLI::App* app = bench.add_subcommand(
      "reduce",
      "measure the reduction kernels: GB/s per data type and operator, compared with loads and memcpy");
  struct Flags {
    bench::ReduceBenchOptions options;
    std::vector<std::string> types;
    std::vector<std::string> ops;
    std::vector<std::string> orders = {"tree"};
    uint64_t size = 256 * kKiB;
  };
  auto flags = std::make_shared<Flags>();
  OptionSet set(*app);
  set.list("-d,--datatype", flags->types, "data types; empty: all");
  set.list("-o,--op", flags->ops, "operators; empty: all");
  set.list("--targets", flags->options.targets,
           "instruction sets, as listed by sluice --version, or \"all\"; empty: the best one");
  set.list("--order", flags->orders, "orders of sums: tree, groups (of earlier releases)");
  set.size("--size", flags->size, "bytes of each source");
  set.number("--sources", flags->options.sources,
             "number of buffers to sum, 1..2048; more than 8 in groups, as a reducer does");
  set.duration("--budget", flags->options.budget, "minimum measuring time per row");
  set.output_file("--json", flags->options.json_path, "write results as JSON");
  set.output_file("--csv", flags->options.csv_path, "write results as CSV, one line per row of the table");
  run_when_selected(*app, chosen, flags, [](const Flags& f) {
    bench::ReduceBenchOptions options = f.options;
    options.bytes = f.size;
    parse_names(f.types, wire::parse_dtype, options.types, "data type");
    parse_names(f.ops, wire::parse_op, options.ops, "operator");
    options.orders.clear();
    parse_names(f.orders, wire::parse_sum_order, options.orders, "order");
    return bench::run_reduce_bench(options);
  });
}

}  // namespace sluice::cli
