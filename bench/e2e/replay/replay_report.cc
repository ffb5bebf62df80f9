#include "bench/e2e/replay/replay_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/report/quantiles.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

std::string step_line(const std::string& name, double whole_us, double compute_us, double exposed_us,
                      double alg_bw) {
  return fmt::format("{:>10} {:>12.3f} {:>12.3f} {:>12.3f} {:>10.4g}\n", name, 1e-3 * whole_us,
                     1e-3 * compute_us, 1e-3 * exposed_us, alg_bw);
}

ordered_json quantiles_summary(const Quantiles& q) {
  return {{"count", q.count}, {"median", q.median}, {"p99", q.p99}};
}

}  // namespace

ReplayReport::ReplayReport(const ReplayOptions& options, const WorkerOptions& worker,
                           const std::vector<RankInfo>& ranks, const std::string& buffers)
    : options_(options), worker_(worker), ranks_(ranks), buffers_(buffers), is_rank_zero_(worker.rank == 0) {
  if (!is_rank_zero_) return;
  machine_ = machine_facts(worker.reducers, worker.interface_address);
  print_flushed(header());
}

std::string ReplayReport::header() const {
  std::string text = fmt::format("# sluice bench replay: {}, {} bytes as {} in {} buckets, {} workers\n",
                                 options_.name, options_.trace.bytes(), wire::to_string(options_.dtype),
                                 options_.trace.buckets.size(), worker_.ranks);
  for (const std::string& comment : options_.trace.comments) text += "# " + comment + "\n";
  text += "# buffers: " + buffers_ + "\n" + text_of(machine_) + "# reducers: " + worker_.reducers + "\n";
  text +=
      "# whole: time from the start of a step until all buckets are reduced, at the slowest worker; exposed: "
      "the part after the last bucket was ready;\n# algbw: all bytes divided by the whole time\n";
  if (options_.trace.compute_us() == 0) text += "# no computation: the times are communication only\n";
  text += fmt::format("#{:>9} {:>12} {:>12} {:>12} {:>10}\n", "step", "whole (ms)", "compute (ms)",
                      "exposed (ms)", "algbw GB/s");
  return text;
}

void ReplayReport::add(double whole_seconds) {
  const double whole_us = 1e6 * whole_seconds;
  const auto compute_us = static_cast<double>(options_.trace.compute_us());
  steps_.push_back({.whole_us = whole_us,
                    .exposed_us = whole_us - compute_us,
                    .alg_bw = 1e-3 * static_cast<double>(options_.trace.bytes()) / whole_us});
  if (!is_rank_zero_) return;
  const Step& step = steps_.back();
  print_flushed(
      step_line(std::to_string(steps_.size()), step.whole_us, compute_us, step.exposed_us, step.alg_bw));
}

std::vector<double> ReplayReport::column(double Step::*field) const {
  std::vector<double> values;
  for (const Step& step : steps_) values.push_back(step.*field);
  return values;
}

std::string ReplayReport::summary(const ReplayTotals& totals) const {
  const Quantiles whole = quantiles_of(column(&Step::whole_us));
  const Quantiles exposed = quantiles_of(column(&Step::exposed_us));
  const auto compute_us = static_cast<double>(options_.trace.compute_us());
  const auto quantile_line = [&](const char* name, double whole_us, double exposed_us) {
    return step_line(name, whole_us, compute_us, exposed_us,
                     1e-3 * static_cast<double>(options_.trace.bytes()) / whole_us);
  };
  return quantile_line("#   median", whole.median, exposed.median) +
         quantile_line("#      p99", whole.p99, exposed.p99) +
         fmt::format(
             "# Steps                : {}\n"
             "# Worker CPU s/GB      : {:.3f}, all workers, per 1e9 bytes contributed\n"
             "# Reducer CPU s/GB     : {}, all reducers, per 1e9 bytes received\n"
             "# Wrong values         : {} {}, every bucket checked once before the steps\n",
             whole.count, totals.worker_cpu_per_gb,
             totals.reducer_cpu_per_gb < 0 ? "-" : fmt::format("{:.3f}", totals.reducer_cpu_per_gb),
             totals.wrong, totals.wrong == 0 ? "OK" : "FAILED");
}

std::string ReplayReport::json(const ReplayTotals& totals) const {
  ordered_json json = {{"schema", "sluice.bench.replay/1"}, {"machine", to_json(machine_)},
                       {"args", options_.arguments},        {"workers", worker_.ranks},
                       {"reducers", worker_.reducers},      {"progress_threads", worker_.progress_threads},
                       {"payload_crc", worker_.payload_crc}};
  json["ranks"] = ordered_json::array();
  for (const RankInfo& info : ranks_)
    json["ranks"].push_back({{"rank", info.rank}, {"pid", info.pid}, {"hostname", info.host}});
  json["trace"] = {{"name", options_.name},
                   {"comments", options_.trace.comments},
                   {"type", wire::to_string(options_.dtype)},
                   {"bytes", options_.trace.bytes()},
                   {"buckets", options_.trace.buckets.size()},
                   {"compute_us", options_.trace.compute_us()}};
  json["buffers"] = buffers_;
  json["warmup"] = options_.warmup;
  json["whole_us"] = quantiles_summary(quantiles_of(column(&Step::whole_us)));
  json["exposed_us"] = quantiles_summary(quantiles_of(column(&Step::exposed_us)));
  json["median_alg_bw"] = median_of(column(&Step::alg_bw));
  json["worker_cpu_seconds_per_gb"] = totals.worker_cpu_per_gb;
  json["reducer_cpu_seconds_per_gb"] =
      totals.reducer_cpu_per_gb < 0 ? ordered_json(nullptr) : ordered_json(totals.reducer_cpu_per_gb);
  json["nwrong"] = totals.wrong;
  json["results"] = ordered_json::array();
  for (const Step& step : steps_) {
    json["results"].push_back(
        {{"whole_us", step.whole_us}, {"exposed_us", step.exposed_us}, {"alg_bw", step.alg_bw}});
  }
  return json.dump(2) + "\n";
}

std::string ReplayReport::csv() const {
  std::string text = "step,whole_us,compute_us,exposed_us,algbw\n";
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    text += fmt::format("{},{},{},{},{}\n", i + 1, step.whole_us, options_.trace.compute_us(),
                        step.exposed_us, step.alg_bw);
  }
  return text;
}

int ReplayReport::finish(const ReplayTotals& totals) {
  if (is_rank_zero_) {
    print_flushed(summary(totals));
    write_result_file(options_.json, json(totals));
    write_result_file(options_.csv, csv());
  }
  return totals.wrong == 0 ? kExitOk : kExitWrongData;
}

}  // namespace sluice::bench
