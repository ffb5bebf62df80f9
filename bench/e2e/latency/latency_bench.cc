#include "bench/e2e/latency/latency_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/star/star_client.h"
#include "bench/e2e/worker/rank_info.h"
#include "bench/e2e/workload/pattern.h"
#include "bench/e2e/workload/size_sweep.h"
#include "config/endpoints.h"
#include "config/json.h"
#include "core/arena.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

constexpr wire::DType kLatencyType = wire::DType::kF32;
constexpr wire::Op kLatencyOp = wire::Op::kSum;

config::Endpoint parse_star(const std::string& text) {
  const auto parsed = value_or_fail(config::parse_endpoints(text), kExitUsage);
  if (parsed.size() != 1) throw Failure(kExitUsage, "--star \"" + text + "\": expected HOST:PORT");
  return parsed.front();
}

std::vector<uint64_t> sizes_of(const LatencyOptions& o) {
  return sizes_of(SizeSweep{.min_bytes = o.min_bytes, .max_bytes = o.max_bytes, .factor = o.step_factor});
}

ordered_json quantiles_json(const Quantiles& q) {
  return {{"count", q.count}, {"p50", q.median * 1e6}, {"p99", q.p99 * 1e6}, {"p999", q.p999 * 1e6}};
}

std::string quantile_columns(const Quantiles& q) {
  return fmt::format("{:>9.2f} {:>9.2f} {:>9.2f}", q.median * 1e6, q.p99 * 1e6, q.p999 * 1e6);
}

// Class LatencyReport prints the table row by row and writes the JSON and CSV files. On ranks other than 0 it
// collects rows and prints nothing.
class LatencyReport {
 public:
  LatencyReport(const LatencyOptions& options, const WorkerOptions& worker, std::vector<RankInfo> ranks)
      : options_(options), worker_(worker), ranks_(std::move(ranks)) {
    if (worker.rank != 0) return;
    machine_ = machine_facts(worker.reducers, worker.interface_address);
    const bool star = !options.star.empty();
    print_flushed(
        text_of(machine_) +
        fmt::format("# sluice bench latency: allreduce of float by sum, one at a time, {}, reducers {}, "
                    "progress by {}\n",
                    workers_text(worker), worker.reducers,
                    worker.progress_threads == 0 ? "the caller" : "a progress thread") +
        fmt::format("# times of rank 0 in us: {} operations of each size{}\n", options.iterations,
                    star ? fmt::format(", and as many of the bare star at {}, in alternating batches of {}",
                                       options.star, options.batch)
                         : "") +
        (star ? "#                        sluice                          star            sluice / star\n"
                "#   size       p50       p99     p99.9       p50       p99     p99.9     p50     p99   "
                "#wrong\n"
              : "#   size       p50       p99     p99.9   #wrong\n"));
  }

  void add(const LatencyRow& row) {
    rows_.push_back(row);
    if (worker_.rank != 0) return;
    std::string line = fmt::format("{:>8} {}", row.bytes, quantile_columns(row.sluice));
    if (row.star) {
      line += fmt::format(" {} {:>7.2f} {:>7.2f}", quantile_columns(*row.star),
                          row.sluice.median / row.star->median, row.sluice.p99 / row.star->p99);
    }
    print_flushed(line + fmt::format(" {:>8}\n", row.wrong));
  }

  // Prints the footer and writes the files. Returns kExitOk or kExitCheckFailed.
  [[nodiscard]] int finish() {
    uint64_t wrong = 0;
    for (const LatencyRow& row : rows_) wrong += row.wrong;
    if (worker_.rank == 0) {
      print_flushed(fmt::format("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED"));
      if (!options_.json.empty()) write_json(wrong);
      if (!options_.csv.empty()) write_csv();
    }
    return wrong == 0 ? kExitOk : kExitCheckFailed;
  }

 private:
  void write_json(uint64_t wrong) const {
    ordered_json json = {{"schema", "sluice.bench.latency/1"}, {"machine", to_json(machine_)}};
    ordered_json& config = json["config"] = {{"workers", worker_.ranks},
                                             {"ranks_per_host", ranks_per_host_json(worker_)},
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
    write_result_file(options_.json, config::json_text(json, 2) + "\n");
  }

  void write_csv() const {
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

  const LatencyOptions& options_;
  const WorkerOptions& worker_;
  std::vector<RankInfo> ranks_;
  MachineFacts machine_;
  std::vector<LatencyRow> rows_;
};

// Class LatencyRun measures all sizes on one rank.
class LatencyRun {
 public:
  LatencyRun(const LatencyOptions& options, const WorkerOptions& worker)
      : options_(options),
        session_(worker),
        send_(value_or_fail(Arena::map(options.max_bytes), kExitFailure)),
        recv_(value_or_fail(Arena::map(options.max_bytes), kExitFailure)) {
    for (const Arena* arena : {&send_, &recv_}) session_.register_memory(arena->data(), arena->size());
    // No allocations in the timed loops.
    sluice_times_.reserve(options.iterations);
    star_times_.reserve(options.iterations);
  }

  int run(const WorkerOptions& worker) {
    LatencyReport report(options_, worker, gather_ranks(session_));
    for (const uint64_t bytes : sizes_of(options_)) report.add(measure(bytes / sizeof(float)));
    const int code = report.finish();
    session_.close();
    return code;
  }

 private:
  LatencyRow measure(size_t count) {
    const uint64_t bytes = count * sizeof(float);
    std::unique_ptr<StarClient> star;  // a connection to the star has a fixed chunk size
    if (!options_.star.empty()) {
      star = std::make_unique<StarClient>(
          parse_star(options_.star), StarShape{.workers = session_.ranks(), .slots = 1, .chunk_bytes = bytes},
          StarWait::kSpin);
    }
    sluice_times_.clear();
    star_times_.clear();
    LatencyRow row{.bytes = bytes};
    uint64_t wrong = 0;
    bool star_first = false;  // alternates which of the two runs after the check
    for (uint32_t done = 0; done < options_.iterations; star_first = !star_first) {
      const uint32_t n = std::min(options_.batch, options_.iterations - done);
      if (star && star_first) run_star(*star, bytes, n);
      wrong += run_sluice(count, n);
      if (star && !star_first) run_star(*star, bytes, n);
      row.checked += session_.ranks();
      done += n;
    }
    row.sluice = quantiles_of(sluice_times_);
    if (star) row.star = quantiles_of(star_times_);
    row.wrong = session_.reduce(wrong, wire::Op::kSum);
    return row;
  }

  // Returns the number of wrong elements in the last result.
  uint64_t run_sluice(size_t count, uint32_t n) {
    const Pattern pattern(kLatencyType, kLatencyOp, session_.ranks(), seed_++);
    pattern.fill(session_.rank(), count, send_.data());
    std::fill_n(recv_.data(), count * sizeof(float), std::byte{0});
    time_each(n, sluice_times_,
              [&] { session_.allreduce(send_.data(), recv_.data(), count, kLatencyType, kLatencyOp); });
    return pattern.count_wrong(recv_.data(), count);
  }

  void run_star(StarClient& star, uint64_t bytes, uint32_t n) {
    time_each(n, star_times_, [&] { star.exchange(send_.data(), recv_.data(), bytes); });
  }

  template <typename Operation>
  void time_each(uint32_t n, std::vector<double>& times, Operation operation) {
    for (uint32_t i = 0; i < options_.warmup; ++i) operation();
    for (uint32_t i = 0; i < n; ++i) {
      const Nanos begin = monotonic_now();
      operation();
      times.push_back(1e-9 * static_cast<double>(monotonic_now() - begin));
    }
  }

  const LatencyOptions& options_;
  WorkerSession session_;
  Arena send_;
  Arena recv_;
  std::vector<double> sluice_times_;  // seconds, of the current size
  std::vector<double> star_times_;
  uint64_t seed_ = 1;
};

}  // namespace

void check(const LatencyOptions& options) {
  if (options.min_bytes < sizeof(float))
    throw Failure(kExitUsage, "minbytes is below 4 B, the size of a float");
  if (options.iterations == 0) throw Failure(kExitUsage, "iters is 0; expected a positive number");
  if (options.batch == 0) throw Failure(kExitUsage, "batch is 0; expected a positive number");
  (void)sizes_of(options);
  if (!options.star.empty()) (void)parse_star(options.star);
}

int run_latency(const LatencyOptions& options, const WorkerOptions& worker) {
  return LatencyRun(options, worker).run(worker);
}

}  // namespace sluice::bench
