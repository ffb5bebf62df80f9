#include "bench/e2e/latency/latency_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

ordered_json quantiles_json(const Quantiles& q) {
  return {{"count", q.count}, {"p50", q.median * 1e6}, {"p99", q.p99 * 1e6}, {"p999", q.p999 * 1e6}};
}

std::string quantile_columns(const Quantiles& q) {
  return fmt::format("{:>9.2f} {:>9.2f} {:>9.2f}", q.median * 1e6, q.p99 * 1e6, q.p999 * 1e6);
}

}  // namespace

LatencyReport::LatencyReport(const LatencyOptions& options, const WorkerOptions& worker,
                             std::vector<RankInfo> ranks)
    : options_(options), worker_(worker), ranks_(std::move(ranks)) {
  if (worker.rank != 0) return;
  machine_ = machine_facts(worker.reducers, worker.interface_address);
  const bool star = !options.star.empty();
  print_flushed(
      text_of(machine_) +
      fmt::format(
          "# sluice bench latency: allreduce of float by sum, one at a time, {} workers, reducers {}, "
          "progress by {}\n",
          worker.ranks, worker.reducers, worker.progress_threads == 0 ? "the caller" : "a progress thread") +
      fmt::format("# times of rank 0 in us: {} operations of each size{}\n", options.iterations,
                  star ? fmt::format(", and as many of the bare star at {}, in alternating batches of {}",
                                     options.star, options.batch)
                       : "") +
      (star
           ? "#                        sluice                          star            sluice / star\n"
             "#   size       p50       p99     p99.9       p50       p99     p99.9     p50     p99   #wrong\n"
           : "#   size       p50       p99     p99.9   #wrong\n"));
}

void LatencyReport::add(const LatencyRow& row) {
  rows_.push_back(row);
  if (worker_.rank != 0) return;
  std::string line = fmt::format("{:>8} {}", row.bytes, quantile_columns(row.sluice));
  if (row.star) {
    line += fmt::format(" {} {:>7.2f} {:>7.2f}", quantile_columns(*row.star),
                        row.sluice.median / row.star->median, row.sluice.p99 / row.star->p99);
  }
  print_flushed(line + fmt::format(" {:>8}\n", row.wrong));
}

int LatencyReport::finish() {
  uint64_t wrong = 0;
  for (const LatencyRow& row : rows_) wrong += row.wrong;
  if (worker_.rank == 0) {
    print_flushed(fmt::format("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED"));
    if (!options_.json.empty()) write_json(wrong);
    if (!options_.csv.empty()) write_csv();
  }
  return wrong == 0 ? kExitOk : kExitWrongData;
}

void LatencyReport::write_json(uint64_t wrong) const {
  ordered_json json = {{"schema", "sluice.bench.latency/1"}, {"machine", to_json(machine_)}};
  ordered_json& config = json["config"] = {{"workers", worker_.ranks},
                                           {"reducers", worker_.reducers},
                                           {"hosts", ordered_json::array()},
                                           {"iterations", options_.iterations},
                                           {"warmup", options_.warmup},
                                           {"batch", options_.batch},
                                           {"progress_threads", worker_.progress_threads},
                                           {"payload_crc", worker_.payload_crc},
                                           {"star", nullptr}};
  for (const RankInfo& info : ranks_) config["hosts"].push_back(info.host);
  if (!options_.star.empty()) config["star"] = options_.star;
  json["results"] = ordered_json::array();
  for (const LatencyRow& row : rows_) {
    ordered_json result = {{"size", row.bytes}, {"sluice", quantiles_json(row.sluice)}, {"star", nullptr}};
    if (row.star) {
      result["star"] = quantiles_json(*row.star);
      result["ratio_p50"] = row.sluice.median / row.star->median;
      result["ratio_p99"] = row.sluice.p99 / row.star->p99;
    }
    result["checked"] = row.checked;
    result["nwrong"] = row.wrong;
    json["results"].push_back(result);
  }
  json["nwrong"] = wrong;
  write_result_file(options_.json, json.dump(2) + "\n");
}

void LatencyReport::write_csv() const {
  std::string text =
      "size,count,sluice_p50_us,sluice_p99_us,sluice_p999_us,star_p50_us,star_p99_us,star_p999_us,wrong\n";
  const auto quantiles_csv = [](const Quantiles& q) {
    return fmt::format("{},{},{}", q.median * 1e6, q.p99 * 1e6, q.p999 * 1e6);
  };
  for (const LatencyRow& row : rows_) {
    text += fmt::format("{},{},{},{},{}\n", row.bytes, row.sluice.count, quantiles_csv(row.sluice),
                        row.star ? quantiles_csv(*row.star) : ",,", row.wrong);
  }
  write_result_file(options_.csv, text);
}

}  // namespace sluice::bench
