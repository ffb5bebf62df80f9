#include "bench/e2e/link/link_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/report/quantiles.h"
#include "bench/e2e/worker/rank_info.h"
#include "bench/e2e/workload/pattern.h"
#include "config/json.h"
#include "config/pool.h"
#include "config/sizes.h"
#include "core/arena.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

constexpr wire::DType kLinkType = wire::DType::kF32;
constexpr wire::Op kLinkOp = wire::Op::kSum;

constexpr size_t kMinColumnWidth = 9;  // "123.4567"

std::string cell(double rate, size_t width) {
  return fmt::format("  {:>{}.4f}", rate, std::max(width, kMinColumnWidth));
}

// Class LinkReport prints the matrix row by row and the slow links, and writes the JSON and CSV files. On
// ranks other than 0 it prints nothing.
class LinkReport {
 public:
  LinkReport(const LinkOptions& options, const WorkerOptions& worker,
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

  // `row`: GB/s with each reducer and, last, with all reducers.
  void add(uint32_t rank, const std::vector<double>& row) const {
    if (worker_.rank != 0) return;
    std::string line = fmt::format("{:>6}  {:<16}", rank, ranks_[rank].host);
    for (size_t r = 0; r < reducers_.size(); ++r) line += cell(row[r], reducers_[r].size());
    print_flushed(line + cell(row.back(), 0) + "\n");
  }

  // Prints the footer and writes the files. Returns kExitOk or kExitCheckFailed.
  [[nodiscard]] int finish(const LinkResults& results) const {
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
      text += fmt::format("# Out of bounds values : {} {}\n", results.wrong,
                          results.wrong == 0 ? "OK" : "FAILED");
      print_flushed(text);
      if (!options_.json.empty()) write_json(results, slow);
      if (!options_.csv.empty()) write_csv(results);
    }
    return results.wrong != 0 || (options_.fail_slow && !slow.empty()) ? kExitCheckFailed : kExitOk;
  }

 private:
  [[nodiscard]] std::string name_of(const SlowLink& slow) const {
    std::string name;
    if (slow.worker) name = fmt::format("worker {} on {}", *slow.worker, ranks_[*slow.worker].host);
    if (slow.worker && slow.reducer) name = "the path between " + name + " and ";
    if (slow.reducer) name += "reducer " + reducers_[*slow.reducer];
    return name;
  }

  void write_json(const LinkResults& results, const std::vector<SlowLink>& slow) const {
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
    write_result_file(options_.json, config::json_text(json, 2) + "\n");
  }

  void write_csv(const LinkResults& results) const {
    std::string text = "rank,host,reducer,gb_per_second,count\n";
    for (const RankInfo& info : ranks_) {
      for (size_t r = 0; r < reducers_.size(); ++r) {
        text += fmt::format("{},{},{},{},{}\n", info.rank, info.host, reducers_[r],
                            results.pairs.at(info.rank, r), options_.iterations);
      }
      text += fmt::format("{},{},all,{},{}\n", info.rank, info.host, results.alone[info.rank],
                          options_.iterations);
    }
    write_result_file(options_.csv, text);
  }

  const LinkOptions& options_;
  const WorkerOptions& worker_;
  const std::vector<std::string>& reducers_;
  std::vector<RankInfo> ranks_;
  MachineFacts machine_;
};

// Class LinkRun measures all pairs on one rank.
class LinkRun {
 public:
  LinkRun(const LinkOptions& options, const WorkerOptions& worker)
      : options_(options),
        worker_(worker),
        reducers_(reducers_of(worker)),
        session_(worker),
        send_(value_or_fail(Arena::map(options.bytes), kExitFailure)),
        recv_(value_or_fail(Arena::map(options.bytes), kExitFailure)) {
    for (const Arena* arena : {&send_, &recv_}) session_.register_memory(arena->data(), arena->size());
  }

  int run() {
    LinkReport report(options_, worker_, reducers_, gather_ranks(session_));
    LinkResults results;
    results.pairs = {.workers = session_.ranks(), .reducers = reducers_.size(), .gb_per_second = {}};
    for (uint32_t rank = 0; rank < session_.ranks(); ++rank) {
      const std::vector<double> row = measure_worker(rank);
      results.pairs.gb_per_second.insert(results.pairs.gb_per_second.end(), row.begin(), row.end() - 1);
      results.alone.push_back(row.back());
      report.add(rank, row);
    }
    const double concurrent = measure(session_);
    results.concurrent = session_.reduce(session_.rank() == 0 ? concurrent : 0, kLinkOp);
    results.wrong = session_.reduce(wrong_, kLinkOp);
    const int code = report.finish(results);
    session_.close();
    return code;
  }

 private:
  // Returns the reducers without weights, because each reducer is measured alone.
  static std::vector<std::string> reducers_of(const WorkerOptions& worker) {
    std::vector<std::string> reducers;
    for (config::Endpoint& endpoint : value_or_fail(config::read_reducers(worker.reducers), kExitUsage)) {
      endpoint.weight = 1;
      reducers.push_back(config::to_string(endpoint));
    }
    return reducers;
  }

  // Returns GB/s of the worker with each reducer and, last, with all reducers. Collective: the other ranks
  // wait for the result.
  std::vector<double> measure_worker(uint32_t rank) {
    std::vector<double> row(reducers_.size() + 1, 0);
    if (rank == session_.rank()) {
      for (size_t r = 0; r < reducers_.size(); ++r) row[r] = measure_alone(reducers_[r]);
      row.back() = measure_alone(worker_.reducers);
    }
    session_.allreduce(row.data(), row.data(), row.size(), wire::DType::kF64, wire::Op::kSum);
    return row;
  }

  double measure_alone(const std::string& reducers) {
    WorkerOptions alone = worker_;
    alone.reducers = reducers;
    alone.session = random_session_id();
    alone.rank = 0;
    alone.ranks = 1;
    WorkerSession session(alone);
    const double rate = measure(session);
    session.close();
    return rate;
  }

  // Returns GB/s in each direction.
  double measure(WorkerSession& session) {
    const size_t count = options_.bytes / sizeof(float);
    const Pattern pattern(kLinkType, kLinkOp, session.ranks(), seed_++);
    pattern.fill(session.rank(), count, send_.data());
    std::fill_n(recv_.data(), options_.bytes, std::byte{0});
    std::vector<double> seconds;
    for (uint32_t i = 0; i < options_.warmup + options_.iterations; ++i) {
      const Nanos begin = monotonic_now();
      session.allreduce(send_.data(), recv_.data(), count, kLinkType, kLinkOp);
      if (i >= options_.warmup) seconds.push_back(1e-9 * static_cast<double>(monotonic_now() - begin));
    }
    wrong_ += pattern.count_wrong(recv_.data(), count);
    return 1e-9 * static_cast<double>(count * sizeof(float)) / median_of(std::move(seconds));
  }

  const LinkOptions& options_;
  const WorkerOptions& worker_;
  const std::vector<std::string> reducers_;
  WorkerSession session_;
  Arena send_;
  Arena recv_;
  uint64_t wrong_ = 0;
  uint64_t seed_ = 1;
};

}  // namespace

void check(const LinkOptions& options) {
  if (options.bytes < sizeof(float)) throw Failure(kExitUsage, "size is below 4 B, the size of a float");
  if (options.iterations == 0) throw Failure(kExitUsage, "iters is 0; expected a positive number");
  if (options.slow <= 0 || options.slow >= 1)
    throw Failure(kExitUsage, "slow: expected a number between 0 and 1");
}

int run_link(const LinkOptions& options, const WorkerOptions& worker) {
  return LinkRun(options, worker).run();
}

}  // namespace sluice::bench
