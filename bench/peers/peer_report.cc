#include "bench/peers/peer_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/report/quantiles.h"

namespace sluice::bench {
namespace {

constexpr const char* kSchema = "sluice.bench.peer/1";

}  // namespace

// Returns CPU seconds of all ranks per 1e9 bytes contributed.
double PeerReport::cpu_per_gb(const std::vector<double>& cpu_seconds, double bytes) const {
  double sum = 0;
  for (const double seconds : cpu_seconds) sum += seconds;
  return sum / (bytes * options_.iterations * peer_.ranks() * 1e-9);
}

void PeerReport::print_row(const std::string& name, const std::vector<double>& seconds, double bytes,
                           const std::vector<double>& cpu_seconds, uint64_t wrong) {
  if (!has_header_) {
    const std::string algorithm = peer_.algorithm();
    fmt::print("# {}, {}, {} ranks, f32 sums; times of the slowest rank\n", peer_.library(),
               algorithm.empty() ? "default algorithm" : "algorithm " + algorithm, peer_.ranks());
    fmt::print("{:>12} {:>6} {:>12} {:>12} {:>13} {:>13} {:>7}\n", "bytes", "runs", "median ms", "p99 ms",
               "algbw GB/s", "CPU s per GB", "#wrong");
    has_header_ = true;
  }
  const Quantiles times = quantiles_of(seconds);
  fmt::print("{:>12} {:>6} {:>12.4f} {:>12.4f} {:>13.4f} {:>13.3f} {:>7}\n", name, times.count,
             1e3 * times.median, 1e3 * times.p99, 1e-9 * bytes / times.median, cpu_per_gb(cpu_seconds, bytes),
             wrong);
  std::fflush(stdout);
}

void PeerReport::add(const SizeResult& result) {
  print_row(std::to_string(result.bytes), result.operation_seconds, static_cast<double>(result.bytes),
            result.cpu_seconds, result.wrong);
  sizes_.push_back(result);
}

void PeerReport::add(const TraceResult& result, const Trace& trace) {
  trace_bytes_ = trace.bytes();
  print_row("trace", result.iteration_seconds, static_cast<double>(trace_bytes_), result.cpu_seconds,
            result.wrong);
  traces_.push_back(result);
}

int PeerReport::finish() {
  nlohmann::ordered_json json = {{"schema", kSchema},
                                 {"machine", to_json(machine_facts(""))},
                                 {"library", peer_.library()},
                                 {"algorithm", peer_.algorithm()},
                                 {"ranks", peer_.ranks()},
                                 {"type", "f32"},
                                 {"op", "sum"},
                                 {"iterations", options_.iterations},
                                 {"warmup", options_.warmup}};
  json["results"] = nlohmann::ordered_json::array();
  uint64_t wrong = 0;
  for (const SizeResult& r : sizes_) {
    json["results"].push_back(
        {{"bytes", r.bytes},
         {"operation_seconds", r.operation_seconds},
         {"loop_seconds", r.loop_seconds},
         {"cpu_seconds", r.cpu_seconds},
         {"cpu_seconds_per_gb", cpu_per_gb(r.cpu_seconds, static_cast<double>(r.bytes))},
         {"wrong", r.wrong}});
    wrong += r.wrong;
  }
  for (const TraceResult& r : traces_) {
    json["results"].push_back(
        {{"bytes", trace_bytes_},
         {"operations", options_.trace->buckets.size()},
         {"operation_seconds", r.iteration_seconds},
         {"allreduce_seconds", r.allreduce_seconds},
         {"cpu_seconds", r.cpu_seconds},
         {"cpu_seconds_per_gb", cpu_per_gb(r.cpu_seconds, static_cast<double>(trace_bytes_))},
         {"wrong", r.wrong}});
    wrong += r.wrong;
  }
  if (!options_.json.empty()) write_result_file(options_.json, json.dump(1) + "\n");
  return wrong == 0 ? kExitOk : kExitWrongData;
}

}  // namespace sluice::bench
