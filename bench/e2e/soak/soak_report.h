// Class SoakReport prints a progress line per interval of `sluice bench soak` and a summary, and writes the
// JSON and CSV files.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/soak/soak_bench.h"
#include "bench/e2e/worker/rank_info.h"

namespace sluice::bench {

class SoakReport {
 public:
  // Prints the header. On ranks other than 0 the report prints nothing.
  SoakReport(const SoakOptions& options, const WorkerOptions& worker, std::vector<RankInfo> ranks,
             uint64_t seed);

  void add(const SoakProgress& progress);
  // Prints the summary and writes the files. Returns kExitOk or kExitCheckFailed.
  [[nodiscard]] int finish(const SoakSummary& summary) const;

 private:
  void write_json(const SoakSummary& summary) const;
  void write_csv() const;

  const SoakOptions& options_;
  const WorkerOptions& worker_;
  const std::vector<RankInfo> ranks_;
  const uint64_t seed_;
  MachineFacts machine_;
  std::vector<SoakProgress> lines_;
};

}  // namespace sluice::bench
