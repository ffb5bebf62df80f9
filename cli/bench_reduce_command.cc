// `sluice bench reduce`
#include "bench/micro/reduce_bench.h"

#include <fmt/format.h>

#include <memory>

#include "bench/e2e/exit_codes.h"
#include "cli/bench_commands.h"
#include "cli/option_set.h"

namespace sluice::cli {
namespace {

using bench::Failure;

template <typename Name, typename Value>
void parse_names(const std::vector<std::string>& names, Name parse, std::vector<Value>& into,
                 const char* what) {
  for (const std::string& name : names) {
    const auto value = parse(name);
    if (!value) throw Failure(bench::kExitUsage, fmt::format("{} \"{}\" is not known", what, name));
    into.push_back(*value);
  }
}

}  // namespace

void add_bench_reduce(CLI::App& bench, Command& chosen) {
  CLI::App* app = bench.add_subcommand(
      "reduce", "the arithmetic alone: GB/s per type and operator, beside loads and memcpy");
  struct Flags {
    bench::ReduceBenchOptions options;
    std::vector<std::string> types;
    std::vector<std::string> ops;
    uint64_t size = 256 * kKiB;
  };
  auto flags = std::make_shared<Flags>();
  OptionSet set(*app);
  set.list("-d,--datatype", flags->types, "types; none: all");
  set.list("-o,--op", flags->ops, "operators; none: all");
  set.list("--targets", flags->options.targets,
           "instruction sets, as sluice --version names them; \"all\"; none: the best one");
  set.size("--size", flags->size, "bytes of each source");
  set.number("--sources", flags->options.sources, "buffers that are summed, 1..256");
  set.duration("--budget", flags->options.budget, "time measured per row, at least");
  set.text("--json", flags->options.json_path, "FILE", "results");
  set.text("--csv", flags->options.csv_path, "FILE", "results, one line per row of the table");
  app->callback([flags, &chosen] {
    chosen = [flags]() -> int {
      bench::ReduceBenchOptions options = flags->options;
      options.bytes = flags->size;
      parse_names(flags->types, wire::parse_dtype, options.types, "datatype");
      parse_names(flags->ops, wire::parse_op, options.ops, "op");
      return bench::run_reduce_bench(options);
    };
  });
}

}  // namespace sluice::cli
