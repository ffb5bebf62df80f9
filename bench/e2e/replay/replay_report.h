// Class ReplayReport prints a line per step of `sluice bench replay` and a summary, and writes the JSON and
// CSV files.
#pragma once

#include <vector>

#include "bench/e2e/replay/replay_bench.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/worker/rank_info.h"

namespace sluice::bench {

// Totals of a replay over all steps.
struct ReplayTotals {
  uint64_t wrong = 0;              // wrong elements on all ranks
  double worker_cpu_per_gb = 0;    // CPU seconds of all workers per 1e9 bytes contributed
  double reducer_cpu_per_gb = -1;  // CPU seconds of all reducers per 1e9 bytes received; negative: unknown
};

class ReplayReport {
 public:
  // Prints the header. On ranks other than 0 the report collects steps and prints nothing.
  ReplayReport(const ReplayOptions& options, const WorkerOptions& worker, const std::vector<RankInfo>& ranks,
               const std::string& buffers);

  // Adds a step; `whole_seconds` is the time of the slowest rank.
  void add(double whole_seconds);
  // Prints the summary and writes the files. Returns the exit code.
  [[nodiscard]] int finish(const ReplayTotals& totals);

 private:
  struct Step {
    double whole_us;
    double exposed_us;  // from the time at which the last bucket was ready
    double alg_bw;      // GB/s: all bytes divided by the whole time
  };
  [[nodiscard]] std::string header() const;
  [[nodiscard]] std::string summary(const ReplayTotals& totals) const;
  [[nodiscard]] std::string json(const ReplayTotals& totals) const;
  [[nodiscard]] std::string csv() const;
  [[nodiscard]] std::vector<double> column(double Step::*field) const;

  const ReplayOptions& options_;
  WorkerOptions worker_;
  std::vector<RankInfo> ranks_;
  std::string buffers_;
  MachineFacts machine_;  // of the host of rank 0
  std::vector<Step> steps_;
  bool is_rank_zero_;
};

}  // namespace sluice::bench
