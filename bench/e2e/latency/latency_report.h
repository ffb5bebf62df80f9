// Class LatencyReport prints the table of `sluice bench latency` row by row and writes the JSON and CSV
// files.
#pragma once

#include <vector>

#include "bench/e2e/latency/latency_bench.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/worker/rank_info.h"

namespace sluice::bench {

class LatencyReport {
 public:
  // Prints the header. On ranks other than 0 the report collects rows and prints nothing.
  LatencyReport(const LatencyOptions& options, const WorkerOptions& worker, std::vector<RankInfo> ranks);

  void add(const LatencyRow& row);
  // Prints the footer and writes the files. Returns kExitOk or kExitWrongData.
  [[nodiscard]] int finish();

 private:
  void write_json(uint64_t wrong) const;
  void write_csv() const;

  const LatencyOptions& options_;
  const WorkerOptions& worker_;
  std::vector<RankInfo> ranks_;
  MachineFacts machine_;
  std::vector<LatencyRow> rows_;
};

}  // namespace sluice::bench
