#include "bench/gpu/gpu_report.h"

#include <fmt/format.h>
#include <sluice/sluice.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/workload/wire_type.h"
#include "config/json.h"
#include "config/sizes.h"
#include "wire/frame.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

constexpr const char* kProgram = "sluice-gpu-bench";
constexpr const char* kSchema = "sluice.bench.gpu/1";

// Formats the columns after those of nccl-tests, whose first header line is three characters shorter than the
// others.
std::string stage_columns(const char* a, const char* b, const char* c, const char* d, const char* e,
                          const char* f) {
  return fmt::format("  {:>7} {:>7} {:>7} {:>10} {:>8} {:>9}\n", a, b, c, d, e, f);
}

std::string header_line() {
  std::istringstream lines(header(false));
  std::string text;
  std::getline(lines, text);
  std::string line;
  std::getline(lines, line);
  text += "\n" + line + "   " + stage_columns("D2H", "network", "H2D", "end to end", "slowest", "end / its");
  std::getline(lines, line);
  text += line + stage_columns("alone", "alone", "alone", "", "stage", "time");
  std::getline(lines, line);
  return text + line + stage_columns("(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)", "", "");
}

std::string gpu_row_line(const GpuRow& row) {
  std::string text = row_line(row.table, false);
  text.pop_back();
  return text + " " +
         stage_columns(format_to_width(row.copy_out.alg_bw, 7).c_str(),
                       format_to_width(row.network.alg_bw, 7).c_str(),
                       format_to_width(row.copy_in.alg_bw, 7).c_str(),
                       format_to_width(row.table.out_of_place.alg_bw, 7).c_str(), row.slowest_name(),
                       format_to_width(row.ratio(), 7).c_str());
}

// Splits "cuda:1" into the ordinal 1 and the kind "cuda".
std::pair<int, std::string> split_device_name(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return {0, name};
  return {std::atoi(name.c_str() + colon + 1), name.substr(0, colon)};
}

ordered_json measurement_json(const Measurement& m) {
  return {{"time", m.seconds * 1e6},
          {"alg_bw", m.alg_bw},
          {"bus_bw", m.bus_bw},
          {"time_median", m.iterations.median * 1e6},
          {"time_p99", m.iterations.p99 * 1e6},
          {"time_count", m.iterations.count},
          {"nwrong", m.checked ? ordered_json(m.wrong) : ordered_json(nullptr)}};
}

ordered_json stage_json(const Measurement& m) {
  return {{"time", m.seconds * 1e6},
          {"gb_per_second", m.alg_bw},
          {"time_median", m.iterations.median * 1e6},
          {"time_p99", m.iterations.p99 * 1e6},
          {"time_count", m.iterations.count}};
}

ordered_json cpu_json(const GpuRow& row) {
  ordered_json json;
  for (size_t i = 0; i < kTimedTasks.size(); ++i) json[kTimedTasks[i]] = row.cpu[i] * 1e6;
  return json;
}

ordered_json to_json(const CopyLimits& l) {
  return {{"bytes", kLimitBytes},
          {"d2h_alone", l.out_alone},
          {"h2d_alone", l.in_alone},
          {"d2h_all_ranks", l.out_concurrent},
          {"h2d_all_ranks", l.in_concurrent},
          {"both_ways_all_ranks", l.both_concurrent}};
}

}  // namespace

std::vector<std::string> gather_devices(WorkerSession& session, const BenchDevice& device) {
  const bool gpu = device.kind() == SLUICE_DEVICE_CUDA;
  return session.gather(gpu ? fmt::format("{}:{}", device.name(), device.ordinal()) : device.name());
}

GpuReport::GpuReport(const GpuBenchOptions& options, const WorkerOptions& worker, const BenchDevice& device,
                     std::vector<RankInfo> ranks, std::vector<std::string> devices, const CopyLimits& limits)
    : options_(options),
      worker_(worker),
      ranks_(std::move(ranks)),
      devices_(std::move(devices)),
      limits_(limits) {
  if (worker.rank != 0) return;
  machine_ = machine_facts(worker.reducers, worker.interface_address);
  print_flushed(header_text(device));
}

std::string GpuReport::header_text(const BenchDevice& device) const {
  const GpuBenchOptions& o = options_;
  std::string text = preamble(
      {.version = fmt::format("{} protocol {}-{}", sluice_version(), wire::kVersionMin, wire::kVersionMax),
       .program = kProgram,
       .min_bytes = o.min_bytes,
       .max_bytes = o.max_bytes,
       .step = o.step_factor > 1 ? o.step_factor : o.step_bytes,
       .step_is_factor = o.step_factor > 1,
       .warmup = o.warmup,
       .iterations = o.iterations,
       .aggregated = 1,
       .check = o.check});
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto [ordinal, kind] = split_device_name(devices_[i]);
    text += device_line(ranks_[i].rank, ranks_[i].pid, ranks_[i].host, ordinal, kind);
  }
  text += text_of(machine_) + "# " + workers_text(worker_) + ", reducers " + worker_.reducers + "\n";
  if (device.kind() == SLUICE_DEVICE_HOST) {
    text +=
        "# device: host. No GPU is involved: D2H and H2D are copies within host memory by the threads of the "
        "streams.\n";
    if (!device.host_reason().empty()) text += "# device: no GPU used: " + device.host_reason() + "\n";
  }
  text += fmt::format("# staging {}, pieces of at most {}, float on the wire: {}\n",
                      config::size_text(o.pieces.staging_bytes), config::size_text(o.pieces.piece_bytes),
                      wire_name(o.pieces.wire));
  text += fmt::format(
      "# copy limits for {} in GB/s: one rank alone D2H {:.2f} H2D {:.2f}; all {} ranks at once, per rank, "
      "D2H {:.2f} H2D {:.2f}, both directions at once {:.2f} per direction\n",
      config::size_text(kLimitBytes), limits_.out_alone, limits_.in_alone, worker_.ranks,
      limits_.out_concurrent, limits_.in_concurrent, limits_.both_concurrent);
  text +=
      "# GB/s refer to the bytes of the operation, even if fewer bytes are transferred. Stages and "
      "operations "
      "alternate on all ranks at once, each after a barrier.\n";
  return text + header_line();
}

void GpuReport::add(const GpuRow& row) {
  rows_.push_back(row);
  if (worker_.rank == 0) print_flushed(gpu_row_line(row));
}

double GpuReport::ratio_at_largest() const {
  uint64_t largest = 0;
  double ratio = 0;
  for (const GpuRow& row : rows_) {
    if (row.table.bytes < largest) continue;
    ratio = row.table.bytes > largest ? row.ratio() : std::max(ratio, row.ratio());
    largest = row.table.bytes;
  }
  return ratio;
}

int GpuReport::finish() {
  uint64_t wrong = 0;
  double bus_bw = 0;
  for (const GpuRow& row : rows_) {
    wrong += row.table.out_of_place.wrong + row.table.in_place.wrong;
    bus_bw += row.table.out_of_place.bus_bw + row.table.in_place.bus_bw;
  }
  if (!rows_.empty()) bus_bw /= 2 * static_cast<double>(rows_.size());
  // The ratio is computed from means over all ranks, so all ranks return the same code.
  const double ratio = ratio_at_largest();
  const bool is_too_slow = options_.max_ratio > 0 && ratio > options_.max_ratio;
  if (worker_.rank == 0) {
    const std::string verdict =
        options_.max_ratio > 0
            ? fmt::format(" {} (at most {})", is_too_slow ? "FAILED" : "OK", options_.max_ratio)
            : "";
    print_flushed(
        fmt::format("# End to end over the slowest single stage, largest size : {:.3f}{}\n", ratio, verdict));
    print_flushed(footer(kProgram, wrong, bus_bw, -1));
    if (!options_.json.empty()) write_json(bus_bw, wrong);
    if (!options_.csv.empty()) write_csv();
  }
  return wrong != 0 || is_too_slow ? kExitCheckFailed : kExitOk;
}

void GpuReport::write_json(double average_bus_bw, uint64_t wrong) const {
  ordered_json json = {{"schema", kSchema}, {"machine", to_json(machine_)}, {"args", options_.arguments}};
  ordered_json& config = json["config"] = {{"workers", worker_.ranks},
                                           {"ranks_per_host", ranks_per_host_json(worker_)},
                                           {"reducers", worker_.reducers},
                                           {"iterations", options_.iterations},
                                           {"warmup_iters", options_.warmup},
                                           {"validation", options_.check},
                                           {"staging_bytes", options_.pieces.staging_bytes},
                                           {"piece_bytes", options_.pieces.piece_bytes},
                                           {"wire", wire_name(options_.pieces.wire)},
                                           {"progress_threads", worker_.progress_threads},
                                           {"payload_crc", worker_.payload_crc}};
  for (size_t i = 0; i < ranks_.size(); ++i) {
    config["devices"].push_back({{"rank", ranks_[i].rank},
                                 {"pid", ranks_[i].pid},
                                 {"hostname", ranks_[i].host},
                                 {"device", devices_[i]}});
  }
  json["copy_limits"] = to_json(limits_);
  json["results"] = ordered_json::array();
  for (const GpuRow& row : rows_) {
    json["results"].push_back({{"size", row.table.bytes},
                               {"count", row.table.count},
                               {"type", nccl_type_name(row.table.dtype)},
                               {"redop", wire::to_string(row.table.op)},
                               {"out_of_place", measurement_json(row.table.out_of_place)},
                               {"in_place", measurement_json(row.table.in_place)},
                               {"d2h", stage_json(row.copy_out)},
                               {"network", stage_json(row.network)},
                               {"h2d", stage_json(row.copy_in)},
                               {"cpu", cpu_json(row)},
                               {"slowest_stage", row.slowest_name()},
                               {"ratio", row.ratio()},
                               {"pieces", row.pieces},
                               {"pieces_sent", row.pieces_sent},
                               {"operations", row.operations}});
  }
  json["ratio_at_largest"] = ratio_at_largest();
  json["out_of_bounds"] = {{"count", wrong}, {"okay", wrong == 0}};
  json["average_bus_bandwidth"] = average_bus_bw;
  write_result_file(options_.json, config::json_text(json, 2) + "\n");
}

void GpuReport::write_csv() const {
  std::string text =
      "size,count,type,redop,out_of_place_time_us,out_of_place_algbw,out_of_place_busbw,out_of_place_wrong,"
      "in_place_time_us,in_place_algbw,in_place_busbw,in_place_wrong,d2h_time_us,d2h_gbps,network_time_us,"
      "network_gbps,h2d_time_us,h2d_gbps,slowest_stage,ratio,pieces\n";
  const auto measurement_csv = [](const Measurement& m) {
    return fmt::format("{},{},{},{}", m.seconds * 1e6, m.alg_bw, m.bus_bw,
                       m.checked ? std::to_string(m.wrong) : "");
  };
  const auto stage_csv = [](const Measurement& m) { return fmt::format("{},{}", m.seconds * 1e6, m.alg_bw); };
  for (const GpuRow& row : rows_) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", row.table.bytes, row.table.count,
                        nccl_type_name(row.table.dtype), wire::to_string(row.table.op),
                        measurement_csv(row.table.out_of_place), measurement_csv(row.table.in_place),
                        stage_csv(row.copy_out), stage_csv(row.network), stage_csv(row.copy_in),
                        row.slowest_name(), row.ratio(), row.pieces);
  }
  write_result_file(options_.csv, text);
}

}  // namespace sluice::bench
