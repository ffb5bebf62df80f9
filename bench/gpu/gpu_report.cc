#include "bench/gpu/gpu_report.h"

#include <fmt/format.h>
#include <sluice/sluice.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/output.h"
#include "config/sizes.h"
#include "wire/frame.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;
using pipeline::WireCast;

constexpr const char* kProgram = "sluice-gpu-bench";
constexpr const char* kSchema = "sluice.bench.gpu/1";

const char* name_of(WireCast wire) noexcept {
  switch (wire) {
    case WireCast::kBf16: return "bf16";
    case WireCast::kScaledF16: return "f16";
    case WireCast::kNone: break;
  }
  return "given";
}

// Behind nccl-tests' columns. Its first line is three characters short.
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
         stage_columns(fitted(row.copy_out.alg_bw, 7).c_str(), fitted(row.network.alg_bw, 7).c_str(),
                       fitted(row.copy_in.alg_bw, 7).c_str(),
                       fitted(row.table.out_of_place.alg_bw, 7).c_str(), row.slowest_name(),
                       fitted(row.ratio(), 7).c_str());
}

// "cuda:1" is device 1 of kind cuda.
std::pair<int, std::string> parse_name(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return {0, name};
  return {std::atoi(name.c_str() + colon + 1), name.substr(0, colon)};
}

ordered_json side(const Measurement& m) {
  return {{"time", m.seconds * 1e6},
          {"alg_bw", m.alg_bw},
          {"bus_bw", m.bus_bw},
          {"time_median", m.iterations.median * 1e6},
          {"time_p99", m.iterations.p99 * 1e6},
          {"time_count", m.iterations.count},
          {"nwrong", m.checked ? ordered_json(m.wrong) : ordered_json(nullptr)}};
}

ordered_json stage(const Measurement& m) {
  return {{"time", m.seconds * 1e6},
          {"gb_per_second", m.alg_bw},
          {"time_median", m.iterations.median * 1e6},
          {"time_p99", m.iterations.p99 * 1e6},
          {"time_count", m.iterations.count}};
}

ordered_json cpu(const GpuRow::Cpu& c) {
  return {{"d2h", c.copy_out * 1e6},
          {"network", c.network * 1e6},
          {"h2d", c.copy_in * 1e6},
          {"out_of_place", c.out_of_place * 1e6},
          {"in_place", c.in_place * 1e6}};
}

ordered_json to_json(const CopyLimits& l) {
  return {{"bytes", kLimitBytes},           {"d2h_alone", l.out_alone},
          {"h2d_alone", l.in_alone},        {"d2h_all_ranks", l.out_together},
          {"h2d_all_ranks", l.in_together}, {"both_ways_all_ranks", l.both_together}};
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
  say(head(device));
}

std::string GpuReport::head(const BenchDevice& device) const {
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
       .check = o.check,
       .unalign = 0,
       .blocking = 0,
       .extras = true});
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto [ordinal, kind] = parse_name(devices_[i]);
    text += device_line(ranks_[i].rank, ranks_[i].pid, ranks_[i].host, ordinal, kind);
  }
  text += text_of(machine_) + "# reducers: " + worker_.reducers + "\n";
  if (device.kind() == SLUICE_DEVICE_HOST) {
    text +=
        "# device: the host. There is no GPU in these figures: D2H and H2D are copies between two places of "
        "the host's memory, by the streams' threads.\n";
    if (!device.why_host().empty()) text += "# device: no GPU was taken: " + device.why_host() + "\n";
  }
  text += fmt::format("# staging {}, pieces of at most {}, float travels as {}\n",
                      config::size_text(o.pieces.staging_bytes), config::size_text(o.pieces.piece_bytes),
                      name_of(o.pieces.wire));
  text += fmt::format(
      "# copy limits, one of {}, GB/s: one rank alone D2H {:.2f} H2D {:.2f}; all {} at once, each, D2H "
      "{:.2f} "
      "H2D {:.2f}, both ways at once {:.2f} each way\n",
      config::size_text(kLimitBytes), limits_.out_alone, limits_.in_alone, worker_.ranks,
      limits_.out_together, limits_.in_together, limits_.both_together);
  text +=
      "# GB/s are of the operation's bytes, however few of them travel. Stages and both sides take turns, "
      "all ranks at once, each after a barrier.\n";
  return text + header_line();
}

void GpuReport::add(const GpuRow& row) {
  rows_.push_back(row);
  if (worker_.rank == 0) say(gpu_row_line(row));
}

double GpuReport::ratio_at_end() const {
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
  // Over the same means on all ranks, so all of them end with the same code.
  const double ratio = ratio_at_end();
  const bool slow = options_.max_ratio > 0 && ratio > options_.max_ratio;
  if (worker_.rank == 0) {
    const std::string asked =
        options_.max_ratio > 0 ? fmt::format(" {} (at most {})", slow ? "FAILED" : "OK", options_.max_ratio)
                               : "";
    say(fmt::format("# End to end over the slowest single stage, largest size : {:.3f}{}\n", ratio, asked));
    say(footer(kProgram, wrong, bus_bw, -1));
    if (!options_.json.empty()) write_json(bus_bw, wrong);
    if (!options_.csv.empty()) write_csv();
  }
  return wrong != 0 || slow ? kExitWrongData : kExitOk;
}

void GpuReport::write_json(double average_bus_bw, uint64_t wrong) const {
  ordered_json json = {{"schema", kSchema}, {"machine", to_json(machine_)}, {"args", options_.arguments}};
  ordered_json& config = json["config"] = {{"workers", worker_.ranks},
                                           {"reducers", worker_.reducers},
                                           {"iterations", options_.iterations},
                                           {"warmup_iters", options_.warmup},
                                           {"validation", options_.check},
                                           {"staging_bytes", options_.pieces.staging_bytes},
                                           {"piece_bytes", options_.pieces.piece_bytes},
                                           {"wire", name_of(options_.pieces.wire)},
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
                               {"out_of_place", side(row.table.out_of_place)},
                               {"in_place", side(row.table.in_place)},
                               {"d2h", stage(row.copy_out)},
                               {"network", stage(row.network)},
                               {"h2d", stage(row.copy_in)},
                               {"cpu", cpu(row.cpu)},
                               {"slowest_stage", row.slowest_name()},
                               {"ratio", row.ratio()},
                               {"pieces", row.pieces},
                               {"pieces_sent", row.pieces_sent},
                               {"operations", row.operations}});
  }
  json["ratio_at_largest"] = ratio_at_end();
  json["out_of_bounds"] = {{"count", wrong}, {"okay", wrong == 0}};
  json["average_bus_bandwidth"] = average_bus_bw;
  save_result(options_.json, json.dump(2) + "\n");
}

void GpuReport::write_csv() const {
  std::string text =
      "size,count,type,redop,out_of_place_time_us,out_of_place_algbw,out_of_place_busbw,out_of_place_wrong,"
      "in_place_time_us,in_place_algbw,in_place_busbw,in_place_wrong,d2h_time_us,d2h_gbps,network_time_us,"
      "network_gbps,h2d_time_us,h2d_gbps,slowest_stage,ratio,pieces\n";
  const auto side_text = [](const Measurement& m) {
    return fmt::format("{},{},{},{}", m.seconds * 1e6, m.alg_bw, m.bus_bw,
                       m.checked ? std::to_string(m.wrong) : "");
  };
  const auto stage_text = [](const Measurement& m) {
    return fmt::format("{},{}", m.seconds * 1e6, m.alg_bw);
  };
  for (const GpuRow& row : rows_) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", row.table.bytes, row.table.count,
                        nccl_type_name(row.table.dtype), wire::to_string(row.table.op),
                        side_text(row.table.out_of_place), side_text(row.table.in_place),
                        stage_text(row.copy_out), stage_text(row.network), stage_text(row.copy_in),
                        row.slowest_name(), row.ratio(), row.pieces);
  }
  save_result(options_.csv, text);
}

}  // namespace sluice::bench
