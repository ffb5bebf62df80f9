#include "bench/micro/reduce_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "bench/micro/reduce_measure.h"
#include "reducer/kernels/fold.h"

namespace sluice::bench {
namespace {

constexpr size_t kMaxSources = 256;  // limit of FoldFunction

template <class E, size_t kCount>
std::vector<E> or_all(const std::vector<E>& chosen) {
  if (!chosen.empty()) return chosen;
  std::vector<E> all;
  for (size_t i = 0; i < kCount; ++i) all.push_back(static_cast<E>(i));
  return all;
}

std::vector<kernels::FoldTarget> choose_targets(const std::vector<std::string>& names) {
  const auto available = kernels::fold_targets();
  if (names.empty()) return {available.front()};
  std::vector<kernels::FoldTarget> chosen;
  for (const std::string& name : names) {
    if (name == "all") return {available.begin(), available.end()};
    const auto found =
        std::find_if(available.begin(), available.end(), [&](const auto& t) { return name == t.name; });
    if (found == available.end()) {
      std::string known;
      for (const auto& t : available) known.append(" ").append(t.name);
      throw Failure(kExitUsage, fmt::format("no target \"{}\" on this CPU; the targets are:{}", name, known));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

void print_header(const ReduceBenchOptions& options, const MachineFacts& machine) {
  fmt::print("{}", text_of(machine));
  fmt::print(
      "# {} sources of {} bytes, one thread. in: bytes of all sources per second; load: the same with "
      "loads\n",
      options.sources, options.bytes);
  fmt::print("# only; ratio: in / load. Medians over interleaved rounds of fold, load and memcpy.\n");
  fmt::print("# wrong: elements that differ from the scalar reference.\n#\n");
  fmt::print("# {:<8}{:<6}{:<9}{:>10}{:>12}{:>8}{:>14}{:>8}{:>8}\n", "type", "op", "target", "in GB/s",
             "load GB/s", "ratio", "memcpy GB/s", "rounds", "#wrong");
}

void print_row(const ReduceRow& row) {
  fmt::print("  {:<8}{:<6}{:<9}{:>10.2f}{:>12.2f}{:>8.2f}{:>14.2f}{:>8}{:>8}\n", wire::to_string(row.type),
             wire::to_string(row.op), row.target, row.fold_gbps, row.load_only_gbps, row.ratio,
             row.memcpy_gbps, row.rounds, row.wrong);
  std::fflush(stdout);
}

nlohmann::ordered_json row_json(const ReduceRow& row) {
  return {{"type", std::string(wire::to_string(row.type))},
          {"op", std::string(wire::to_string(row.op))},
          {"target", row.target},
          {"in_gbps", row.fold_gbps},
          {"load_only_gbps", row.load_only_gbps},
          {"ratio", row.ratio},
          {"memcpy_gbps", row.memcpy_gbps},
          {"rounds", row.rounds},
          {"wrong", row.wrong}};
}

std::string row_csv(const ReduceRow& row) {
  return fmt::format("{},{},{},{},{},{},{},{},{}\n", wire::to_string(row.type), wire::to_string(row.op),
                     row.target, row.fold_gbps, row.load_only_gbps, row.ratio, row.memcpy_gbps, row.rounds,
                     row.wrong);
}

void write_json(const ReduceBenchOptions& options, const MachineFacts& machine,
                const nlohmann::ordered_json& rows) {
  const nlohmann::ordered_json document = {{"schema", "sluice.bench.reduce/1"},
                                           {"machine", to_json(machine)},
                                           {"bytes_per_source", options.bytes},
                                           {"sources", options.sources},
                                           {"results", rows}};
  write_result_file(options.json_path, document.dump(2) + "\n");
}

}  // namespace

int run_reduce_bench(const ReduceBenchOptions& options) {
  if (options.sources < 1 || options.sources > kMaxSources || options.bytes < sizeof(uint64_t)) {
    throw Failure(kExitUsage, fmt::format("{} sources of {} B; expected 1 to {} sources of at least {} B",
                                          options.sources, options.bytes, kMaxSources, sizeof(uint64_t)));
  }
  const std::vector<kernels::FoldTarget> targets = choose_targets(options.targets);
  ReduceBuffers buffers = value_or_fail(ReduceBuffers::make(options.sources, options.bytes), kExitFailure);
  const MachineFacts machine = machine_facts("");
  print_header(options, machine);
  size_t wrong = 0;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::string csv = "type,op,target,in_gbps,load_only_gbps,ratio,memcpy_gbps,rounds,wrong\n";
  for (const wire::DType t : or_all<wire::DType, wire::kDTypeCount>(options.types)) {
    buffers.fill(t);
    for (const wire::Op op : or_all<wire::Op, wire::kOpCount>(options.ops)) {
      for (const kernels::FoldTarget& target : targets) {
        const ReduceRow row = measure_reduce(buffers, t, op, target, options.budget);
        print_row(row);
        rows.push_back(row_json(row));
        csv += row_csv(row);
        wrong += row.wrong;
      }
    }
  }
  fmt::print("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  if (!options.json_path.empty()) write_json(options, machine, rows);
  if (!options.csv_path.empty()) write_result_file(options.csv_path, csv);
  return wrong == 0 ? kExitOk : kExitWrongData;
}

}  // namespace sluice::bench
