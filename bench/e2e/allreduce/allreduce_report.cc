#include "bench/e2e/allreduce/allreduce_report.h"

#include <fmt/format.h>
#include <sluice/sluice.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/workload/wire_type.h"
#include "config/json.h"
#include "wire/frame.h"

extern char** environ;

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

constexpr const char* kProgram = "sluice bench allreduce";
constexpr const char* kSchema = "sluice.bench.allreduce/1";

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm broken{};
  localtime_r(&now, &broken);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &broken);
  return text.data();
}

ordered_json measurement_json(const Measurement& m) {
  ordered_json json = {{"time", m.seconds * 1e6}, {"alg_bw", m.alg_bw}, {"bus_bw", m.bus_bw}};
  json["time_median"] = m.iterations.median * 1e6;
  json["time_p99"] = m.iterations.p99 * 1e6;
  json["began"] = m.began;
  json["time_count"] = m.iterations.count;
  json["iteration_times"] = ordered_json::array();
  for (const double seconds : m.iterations_of_slowest) json["iteration_times"].push_back(seconds * 1e6);
  json["nwrong"] = m.checked ? ordered_json(m.wrong) : ordered_json(nullptr);
  return json;
}

ordered_json row_json(const Row& row, int iterations) {
  ordered_json json = {{"size", row.bytes},
                       {"count", row.count},
                       {"type", nccl_type_name(row.dtype)},
                       {"redop", wire::to_string(row.op)},
                       {"root", "    -1"}};  // nccl-tests writes the text of the column
  json["out_of_place"] = measurement_json(row.out_of_place);
  json["in_place"] = measurement_json(row.in_place);
  json["actual_iterations"] = iterations;
  json["experiment_name"] = "";
  json["wire_bytes_sent"] = row.wire_out;
  json["wire_bytes_received"] = row.wire_in;
  json["reducer_cpu_seconds_per_gb"] =
      row.reducer_cpu_per_gb < 0 ? ordered_json(nullptr) : ordered_json(row.reducer_cpu_per_gb);
  json["worker_cpu_seconds_per_gb"] = row.worker_cpu_per_gb;
  return json;
}

}  // namespace

std::vector<std::string> recorded_environment() {
  constexpr std::array<const char*, 4> kPrefixes = {"SLUICE_", "NCCL_", "UCX_", "FI_"};
  std::vector<std::string> recorded;
  for (char** e = environ; *e != nullptr; ++e) {
    for (const char* prefix : kPrefixes) {
      if (std::strncmp(*e, prefix, std::strlen(prefix)) == 0) recorded.emplace_back(*e);
    }
  }
  std::sort(recorded.begin(), recorded.end());
  return recorded;
}

AllreduceReport::AllreduceReport(const AllreduceOptions& options, const WorkerOptions& worker,
                                 const std::vector<RankInfo>& ranks)
    : options_(options),
      worker_(worker),
      ranks_(ranks),
      start_time_(now_text()),
      is_rank_zero_(worker.rank == 0) {
  if (!is_rank_zero_) return;
  machine_ = machine_facts(worker.reducers, worker.interface_address);
  const TableConfig config{
      .version = fmt::format("{} protocol {}-{}", sluice_version(), wire::kVersionMin, wire::kVersionMax),
      .program = kProgram,
      .min_bytes = options.min_bytes,
      .max_bytes = options.max_bytes,
      .step = options.step_factor > 1 ? options.step_factor : options.step_bytes,
      .step_is_factor = options.step_factor > 1,
      .warmup = options.warmup,
      .iterations = options.iterations,
      .aggregated = options.aggregated,
      .check = options.check,
      .unalign = options.unalign,
      .blocking = options.blocking,
      .extras = options.extras};
  std::string text = preamble(config);
  for (const RankInfo& info : ranks) text += device_line(info.rank, info.pid, info.host);
  if (options.extras) {
    const char* const sender = worker.ranks_per_host > 1 ? "host" : "worker";
    text += text_of(machine_) + "# " + workers_text(worker) + "\n# reducers: " + worker.reducers + "\n";
    text +=
        "# wire bytes: bytes on the lane connections of one worker, including headers\n"
        "# reducer CPU: user and system seconds of all reducers per 1e9 bytes received, as the reducers "
        "report "
        "them\n"
        "# worker CPU: user and system seconds of all workers per 1e9 bytes contributed\n";
    if (host_count(worker) == 2)
      text += fmt::format(
          "# 2 {}s: a ring moves the same bytes per {} as reducers do, so reducers are not faster\n", sender,
          sender);
  }
  text += header(options.extras);
  print_flushed(text);
}

void AllreduceReport::add(const Row& row) {
  rows_.push_back(row);
  if (!is_rank_zero_) return;
  print_flushed(row_line(row, options_.extras));
}

int AllreduceReport::finish() {
  uint64_t wrong = 0;
  double bus_bw = 0;
  for (const Row& row : rows_) {
    wrong += row.out_of_place.wrong + row.in_place.wrong;
    bus_bw += row.out_of_place.bus_bw + row.in_place.bus_bw;
  }
  if (!rows_.empty()) bus_bw /= 2 * static_cast<double>(rows_.size());
  if (is_rank_zero_) {
    print_flushed(footer(kProgram, wrong, bus_bw, options_.min_bw));
    if (!options_.json.empty()) write_json(bus_bw, wrong);
    if (!options_.csv.empty()) write_csv();
  }
  return wrong != 0 || below_min_bw(bus_bw, options_.min_bw) ? kExitCheckFailed : kExitOk;
}

void AllreduceReport::write_json(double average_bus_bw, uint64_t wrong) const {
  ordered_json json = {
      {"schema", kSchema}, {"version", 1}, {"start_time", start_time_}, {"args", options_.arguments}};
  json["env"] = options_.environment;
  json["sluice_version"] = sluice_version();
  json["machine"] = to_json(machine_);
  ordered_json config = {{"nthreads", 1},
                         {"ngpus", 1},
                         {"minimum_bytes", options_.min_bytes},
                         {"maximum_bytes", options_.max_bytes}};
  if (options_.step_factor > 1) {
    config["step_factor"] = options_.step_factor;
  } else {
    config["step_bytes"] = options_.step_bytes;
  }
  config["warmup_iters"] = options_.warmup;
  config["iterations"] = options_.iterations;
  config["aggregated_iterations"] = options_.aggregated;
  config["wire"] = wire_name(options_.wire);
  config["zeros"] = options_.zeros;
  config["validation"] = options_.check;
  config["graph"] = 0;
  config["blocking_collectives"] = options_.blocking != 0;
  config["workers"] = worker_.ranks;
  config["ranks_per_host"] = ranks_per_host_json(worker_);
  config["reducers"] = worker_.reducers;
  config["progress_threads"] = worker_.progress_threads;
  config["payload_crc"] = worker_.payload_crc;
  config["devices"] = ordered_json::array();
  for (const RankInfo& info : ranks_) {
    config["devices"].push_back({{"rank", info.rank},
                                 {"group", 0},
                                 {"pid", info.pid},
                                 {"hostname", info.host},
                                 {"device", 0},
                                 {"device_hex", "0000:00:00"},
                                 {"device_info", "cpu"}});
  }
  json["config"] = config;
  json["results"] = ordered_json::array();
  for (const Row& row : rows_) json["results"].push_back(row_json(row, options_.iterations));
  json["out_of_bounds"] = {{"count", wrong}, {"okay", wrong == 0}};
  json["average_bus_bandwidth"] = {{"bandwidth", average_bus_bw},
                                   {"okay", !below_min_bw(average_bus_bw, options_.min_bw)}};
  json["end_time"] = now_text();
  write_result_file(options_.json, config::json_text(json, 2) + "\n");
}

void AllreduceReport::write_csv() const {
  std::string text =
      "size,count,type,redop,out_of_place_time_us,out_of_place_algbw,out_of_place_busbw,out_of_place_wrong,"
      "in_place_time_us,in_place_algbw,in_place_busbw,in_place_wrong,wire_bytes_sent,wire_bytes_received,"
      "reducer_cpu_seconds_per_gb,worker_cpu_seconds_per_gb,out_of_place_median_us,out_of_place_p99_us,"
      "in_place_median_us,in_place_p99_us,time_count\n";
  const auto measurement_csv = [](const Measurement& m) {
    return fmt::format("{},{},{},{}", m.seconds * 1e6, m.alg_bw, m.bus_bw,
                       m.checked ? std::to_string(m.wrong) : "");
  };
  for (const Row& row : rows_) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", row.bytes, row.count,
                        nccl_type_name(row.dtype), wire::to_string(row.op), measurement_csv(row.out_of_place),
                        measurement_csv(row.in_place), row.wire_out, row.wire_in,
                        row.reducer_cpu_per_gb < 0 ? "" : fmt::format("{}", row.reducer_cpu_per_gb),
                        row.worker_cpu_per_gb, row.out_of_place.iterations.median * 1e6,
                        row.out_of_place.iterations.p99 * 1e6, row.in_place.iterations.median * 1e6,
                        row.in_place.iterations.p99 * 1e6, row.in_place.iterations.count);
  }
  write_result_file(options_.csv, text);
}

}  // namespace sluice::bench
