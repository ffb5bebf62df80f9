// What rank 0 tells of a replay: a line per step as it ends, then medians and tails; JSON and CSV at the end.
#pragma once

#include <vector>

#include "bench/e2e/machine_facts.h"
#include "bench/e2e/rank_info.h"
#include "bench/e2e/replay_bench.h"

namespace sluice::bench {

// What a whole replay used and found.
struct ReplayTotals {
  uint64_t wrong = 0;              // elements, over all ranks
  double worker_cpu_per_gb = 0;    // seconds of all workers per 1e9 bytes contributed
  double reducer_cpu_per_gb = -1;  // of all reducers per 1e9 bytes received; below 0: they do not tell
};

class ReplayReport {
 public:
  // Prints the head. A report that is not of rank 0 collects and says nothing.
  ReplayReport(const ReplayOptions& options, const WorkerOptions& worker, const std::vector<RankInfo>& ranks,
               const std::string& buffers);

  // Of the slowest rank.
  void add(double whole_seconds);
  // Prints the tail and writes the files. Returns the exit code.
  [[nodiscard]] int finish(const ReplayTotals& totals);

 private:
  struct Step {
    double whole_us;
    double exposed_us;  // after the last bucket was ready
    double alg_bw;      // GB/s: all bytes over the whole time
  };
  [[nodiscard]] std::string head() const;
  [[nodiscard]] std::string tail(const ReplayTotals& totals) const;
  [[nodiscard]] std::string json(const ReplayTotals& totals) const;
  [[nodiscard]] std::string csv() const;
  [[nodiscard]] std::vector<double> column(double Step::*field) const;

  const ReplayOptions& options_;
  WorkerOptions worker_;
  std::vector<RankInfo> ranks_;
  std::string buffers_;
  MachineFacts machine_;  // rank 0's
  std::vector<Step> steps_;
  bool speaks_;
};

}  // namespace sluice::bench
