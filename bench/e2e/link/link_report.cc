#include "bench/e2e/link/link_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "config/sizes.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMinColumnWidth = 9;  // "123.4567"

std::string cell(double rate, size_t width) {
  return fmt::format("  {:>{}.4f}", rate, std::max(width, kMinColumnWidth));
}

}  // namespace

LinkReport::LinkReport(const LinkOptions& options, const WorkerOptions& worker,
                       const std::vector<std::string>& reducers, std::vector<RankInfo> ranks)
    : options_(options), worker_(worker), reducers_(reducers), ranks_(std::move(ranks)) {
  if (worker.rank != 0) return;
  machine_ = machine_facts(worker.reducers, worker.interface_address);
  std::string head = text_of(machine_);
  head += fmt::format(
      "# sluice bench link: GB/s in each direction between one worker and one reducer, then all reducers; "
      "the "
      "other workers wait\n# medians of {} allreduces of {}\n# rank  host            ",
      options.iterations, config::size_text(options.bytes));
  for (const std::string& reducer : reducers) head += fmt::format("  {:>{}}", reducer, kMinColumnWidth);
  print_flushed(head + fmt::format("  {:>{}}\n", "all", kMinColumnWidth));
}

void LinkReport::add(uint32_t rank, const std::vector<double>& row) const {
  if (worker_.rank != 0) return;
  std::string line = fmt::format("{:>6}  {:<16}", rank, ranks_[rank].host);
  for (size_t r = 0; r < reducers_.size(); ++r) line += cell(row[r], reducers_[r].size());
  print_flushed(line + cell(row.back(), 0) + "\n");
}

std::string LinkReport::name_of(const SlowLink& slow) const {
  std::string name;
  if (slow.worker) name = fmt::format("worker {} on {}", *slow.worker, ranks_[*slow.worker].host);
  if (slow.worker && slow.reducer) name = "the path between " + name + " and ";
  if (slow.reducer) name += "reducer " + reducers_[*slow.reducer];
  return name;
}

int LinkReport::finish(const LinkResults& results) const {
  const std::vector<SlowLink> slow = slow_links(results.pairs, options_.slow);
  if (worker_.rank == 0) {
    const double median = results.pairs.median();
    std::string text = fmt::format("# median of the pairs  : {:.4f} GB/s\n", median);
    text += fmt::format("# all workers at once  : {:.4f} GB/s each\n", results.concurrent);
    for (const SlowLink& link : slow) {
      text += fmt::format("# slow                 : {}: {:.4f} GB/s, {:.2f} of the median\n", name_of(link),
                          link.gb_per_second, link.gb_per_second / median);
    }
    const double coverage = coverage_of(results.alone, results.concurrent);
    text += coverage < options_.slow ? fmt::format(
                                           "# bottleneck           : the pool: with all workers at once a "
                                           "worker reaches {:.2f} of the "
                                           "bandwidth of the slowest worker alone\n",
                                           coverage)
                                     : std::string("# bottleneck           : the workers' links\n");
    if (slow.empty())
      text += fmt::format("# slow                 : none below {} of the median\n", options_.slow);
    text +=
        fmt::format("# Out of bounds values : {} {}\n", results.wrong, results.wrong == 0 ? "OK" : "FAILED");
    print_flushed(text);
    if (!options_.json.empty()) write_json(results, slow);
    if (!options_.csv.empty()) write_csv(results);
  }
  return results.wrong != 0 || (options_.fail_slow && !slow.empty()) ? kExitWrongData : kExitOk;
}

void LinkReport::write_json(const LinkResults& results, const std::vector<SlowLink>& slow) const {
  ordered_json json = {{"schema", "sluice.bench.link/1"}, {"machine", to_json(machine_)}};
  json["config"] = {{"workers", worker_.ranks},          {"reducers", reducers_},
                    {"bytes", options_.bytes},           {"iterations", options_.iterations},
                    {"warmup", options_.warmup},         {"slow", options_.slow},
                    {"payload_crc", worker_.payload_crc}};
  const double median = results.pairs.median();
  json["results"] = ordered_json::array();
  for (const RankInfo& info : ranks_) {
    for (size_t r = 0; r < reducers_.size(); ++r) {
      const double rate = results.pairs.at(info.rank, r);
      json["results"].push_back({{"rank", info.rank},
                                 {"host", info.host},
                                 {"reducer", reducers_[r]},
                                 {"count", options_.iterations},
                                 {"gb_per_second", rate},
                                 {"of_median", rate / median}});
    }
  }
  json["alone_with_all_reducers_gb_per_second"] = results.alone;
  json["all_at_once_gb_per_second"] = results.concurrent;
  const double coverage = coverage_of(results.alone, results.concurrent);
  json["coverage"] = coverage;
  json["bottleneck"] = coverage < options_.slow ? "pool" : "workers";
  json["median_gb_per_second"] = median;
  json["slow"] = ordered_json::array();
  for (const SlowLink& link : slow) {
    ordered_json entry = {{"rank", nullptr}, {"host", nullptr}, {"reducer", nullptr}};
    if (link.worker) {
      entry["rank"] = *link.worker;
      entry["host"] = ranks_[*link.worker].host;
    }
    if (link.reducer) entry["reducer"] = reducers_[*link.reducer];
    entry["gb_per_second"] = link.gb_per_second;
    entry["of_median"] = link.gb_per_second / median;
    json["slow"].push_back(entry);
  }
  json["nwrong"] = results.wrong;
  write_result_file(options_.json, json.dump(2) + "\n");
}

void LinkReport::write_csv(const LinkResults& results) const {
  std::string text = "rank,host,reducer,gb_per_second,count\n";
  for (const RankInfo& info : ranks_) {
    for (size_t r = 0; r < reducers_.size(); ++r) {
      text += fmt::format("{},{},{},{},{}\n", info.rank, info.host, reducers_[r],
                          results.pairs.at(info.rank, r), options_.iterations);
    }
    text +=
        fmt::format("{},{},all,{},{}\n", info.rank, info.host, results.alone[info.rank], options_.iterations);
  }
  write_result_file(options_.csv, text);
}

}  // namespace sluice::bench
