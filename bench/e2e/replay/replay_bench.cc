#include "bench/e2e/replay/replay_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <vector>

#include "bench/e2e/pool/pool_status.h"
#include "bench/e2e/process/cpu_time.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/replay/bucket_buffers.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/report/quantiles.h"
#include "bench/e2e/worker/rank_info.h"
#include "bench/e2e/workload/pattern.h"
#include "config/json.h"
#include "config/pool.h"
#include "config/sizes.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxInFlight = 1000;  // below the limit of the library, 1024 operations

double replay_seconds(Nanos time) {
  return 1e-9 * static_cast<double>(time);
}

void sleep_until(Nanos when) {
  const timespec t{.tv_sec = when / kSecond, .tv_nsec = when % kSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

std::string step_line(const std::string& name, double whole_us, double compute_us, double exposed_us,
                      double alg_bw) {
  return fmt::format("{:>10} {:>12.3f} {:>12.3f} {:>12.3f} {:>10.4g}\n", name, 1e-3 * whole_us,
                     1e-3 * compute_us, 1e-3 * exposed_us, alg_bw);
}

ordered_json quantiles_summary(const Quantiles& q) {
  return {{"count", q.count}, {"median", q.median}, {"p99", q.p99}};
}

// Totals of a replay over all steps.
struct ReplayTotals {
  uint64_t wrong = 0;              // wrong elements on all ranks
  double worker_cpu_per_gb = 0;    // CPU seconds of all workers per 1e9 bytes contributed
  double reducer_cpu_per_gb = -1;  // CPU seconds of all reducers per 1e9 bytes received; negative: unknown
};

// Class ReplayReport prints a line per step and a summary, and writes the JSON and CSV files. On ranks other
// than 0 it collects steps and prints nothing.
class ReplayReport {
 public:
  ReplayReport(const ReplayOptions& options, const WorkerOptions& worker, const std::vector<RankInfo>& ranks,
               const std::string& buffers)
      : options_(options),
        worker_(worker),
        ranks_(ranks),
        buffers_(buffers),
        is_rank_zero_(worker.rank == 0) {
    if (!is_rank_zero_) return;
    machine_ = machine_facts(worker.reducers, worker.interface_address);
    print_flushed(header());
  }

  // Adds a step; `whole_seconds` is the time of the slowest rank.
  void add(double whole_seconds) {
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

  // Prints the summary and writes the files. Returns the exit code.
  [[nodiscard]] int finish(const ReplayTotals& totals) {
    if (is_rank_zero_) {
      print_flushed(summary(totals));
      write_result_file(options_.json, json(totals));
      write_result_file(options_.csv, csv());
    }
    return totals.wrong == 0 ? kExitOk : kExitCheckFailed;
  }

 private:
  struct Step {
    double whole_us;
    double exposed_us;  // from the time at which the last bucket was ready
    double alg_bw;      // GB/s: all bytes divided by the whole time
  };

  [[nodiscard]] std::string header() const {
    std::string text = fmt::format("# sluice bench replay: {}, {} bytes as {} in {} buckets, {}\n",
                                   options_.name, options_.trace.bytes(), wire::to_string(options_.dtype),
                                   options_.trace.buckets.size(), workers_text(worker_));
    for (const std::string& comment : options_.trace.comments) text += "# " + comment + "\n";
    text += "# buffers: " + buffers_ + "\n" + text_of(machine_) + "# reducers: " + worker_.reducers + "\n";
    text +=
        "# whole: time from the start of a step until all buckets are reduced, at the slowest worker; "
        "exposed: "
        "the part after the last bucket was ready;\n# algbw: all bytes divided by the whole time\n";
    if (options_.trace.compute_us() == 0) text += "# no computation: the times are communication only\n";
    text += fmt::format("#{:>9} {:>12} {:>12} {:>12} {:>10}\n", "step", "whole (ms)", "compute (ms)",
                        "exposed (ms)", "algbw GB/s");
    return text;
  }

  [[nodiscard]] std::vector<double> column(double Step::*field) const {
    std::vector<double> values;
    for (const Step& step : steps_) values.push_back(step.*field);
    return values;
  }

  [[nodiscard]] std::string summary(const ReplayTotals& totals) const {
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

  [[nodiscard]] std::string json(const ReplayTotals& totals) const {
    ordered_json json = {{"schema", "sluice.bench.replay/1"}, {"machine", to_json(machine_)},
                         {"args", options_.arguments},        {"workers", worker_.ranks},
                         {"reducers", worker_.reducers},      {"progress_threads", worker_.progress_threads},
                         {"payload_crc", worker_.payload_crc}};
    json["ranks_per_host"] = ranks_per_host_json(worker_);
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
    return config::json_text(json, 2) + "\n";
  }

  [[nodiscard]] std::string csv() const {
    std::string text = "step,whole_us,compute_us,exposed_us,algbw\n";
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      text += fmt::format("{},{},{},{},{}\n", i + 1, step.whole_us, options_.trace.compute_us(),
                          step.exposed_us, step.alg_bw);
    }
    return text;
  }

  const ReplayOptions& options_;
  WorkerOptions worker_;
  std::vector<RankInfo> ranks_;
  std::string buffers_;
  MachineFacts machine_;  // of the host of rank 0
  std::vector<Step> steps_;
  bool is_rank_zero_;
};

// Class ReplayRun replays the trace on one rank.
class ReplayRun {
 public:
  ReplayRun(const ReplayOptions& options, const WorkerOptions& worker)
      : options_(options),
        buckets_(options.trace.buckets),
        buffers_(buckets_, options.buffer_limit),
        session_(worker),
        has_progress_thread_(worker.progress_threads != 0),
        reducer_cpu_(value_or_fail(config::read_reducers(worker.reducers), kExitUsage),
                     identity_of_process()),
        requests_(buckets_.size()) {
    for (const std::span<std::byte> part : buffers_.memory())
      session_.register_memory(part.data(), part.size());
  }

  int run(const WorkerOptions& worker) {
    ReplayReport report(options_, worker, gather_ranks(session_), buffers_text());
    ReplayTotals totals;
    totals.wrong = session_.reduce(count_wrong(), wire::Op::kSum);
    for (uint32_t i = 0; i < options_.warmup; ++i) (void)run_step();

    // If the pool does not answer, the report has no reducer figure, and the run continues.
    if (session_.rank() == 0) reducer_cpu_.start();
    double cpu = 0;  // seconds
    for (uint32_t i = 0; i < options_.iterations; ++i) {
      session_.barrier();
      const double cpu_before = own_cpu_seconds();
      const Nanos whole = run_step();
      cpu += own_cpu_seconds() - cpu_before;
      report.add(session_.reduce(replay_seconds(whole), wire::Op::kMax));
    }
    const double gb =
        1e-9 * static_cast<double>(options_.trace.bytes()) * options_.iterations * session_.ranks();
    totals.worker_cpu_per_gb = session_.reduce(cpu, wire::Op::kSum) / gb;
    totals.reducer_cpu_per_gb = reducer_cpu_.seconds_per_gb();
    const int code = report.finish(totals);
    session_.close();
    return code;
  }

 private:
  [[nodiscard]] size_t elements_of(size_t bucket) const {
    return buckets_[bucket].bytes / wire::size_of(options_.dtype);
  }

  void start(size_t bucket, wire::Op op) {
    const auto [send, recv] = buffers_.buffers_of(bucket);
    requests_[bucket] = session_.start(send, recv, elements_of(bucket), options_.dtype, op);
  }

  // Runs one step. Returns the time from its start until every bucket is reduced. Averages
  // as frameworks do: in place, each step reduces the results of the step before, and sums would overflow.
  // count_wrong() checks sums.
  Nanos run_step() {
    const Nanos begin = monotonic_now();
    size_t finished = 0;  // number of buckets known to be reduced
    for (size_t i = 0; i < buckets_.size(); ++i) {
      wait_until(begin + static_cast<Nanos>(buckets_[i].ready_us) * kMicrosecond, finished, i);
      if (i - finished == kMaxInFlight) session_.wait(requests_[finished++]);
      start(i, wire::Op::kAvg);
    }
    while (finished < buckets_.size()) session_.wait(requests_[finished++]);
    return monotonic_now() - begin;
  }

  // Waits until `when`. Buckets from `finished` to `started` are in flight. Without a progress thread they
  // make progress only while this thread waits for them.
  void wait_until(Nanos when, size_t& finished, size_t started) {
    while (!has_progress_thread_ && finished < started) {
      const Nanos left = when - monotonic_now();
      if (left <= 0) return;
      if (session_.wait_for(requests_[finished], static_cast<int>(left / kMillisecond))) ++finished;
    }
    sleep_until(when);
  }

  // Reduces every bucket once with known data. Buckets without shared memory are in flight at the same time.
  uint64_t count_wrong() {
    uint64_t wrong = 0;
    for (size_t begin = 0; begin < buckets_.size();) {
      const size_t end = std::min(buffers_.end_of_disjoint(begin), begin + kMaxInFlight);
      for (size_t i = begin; i < end; ++i)
        pattern(i).fill(session_.rank(), elements_of(i), buffers_.buffers_of(i).send);
      for (size_t i = begin; i < end; ++i) start(i, wire::Op::kSum);
      for (size_t i = begin; i < end; ++i) session_.wait(requests_[i]);
      for (size_t i = begin; i < end; ++i)
        wrong += pattern(i).count_wrong(buffers_.buffers_of(i).recv, elements_of(i));
      begin = end;
    }
    return wrong;
  }

  [[nodiscard]] Pattern pattern(size_t bucket) const {
    return {options_.dtype, wire::Op::kSum, session_.ranks(), bucket + 1};
  }

  [[nodiscard]] std::string buffers_text() const {
    if (!buffers_.shared()) return "in place, separate memory for each bucket";
    return fmt::format(
        "shared memory of {}, one half to send and one half to receive; less memory than the model needs, "
        "the "
        "same bytes on the wire",
        config::size_text(buffers_.bytes()));
  }

  const ReplayOptions& options_;
  const std::vector<Bucket>& buckets_;
  BucketBuffers buffers_;
  WorkerSession session_;
  bool has_progress_thread_;
  PoolCpuMeter reducer_cpu_;
  std::vector<sluice_request> requests_;
};

}  // namespace

int run_replay(const ReplayOptions& options, const WorkerOptions& worker) {
  return ReplayRun(options, worker).run(worker);
}

}  // namespace sluice::bench
