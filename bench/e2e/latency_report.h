// What rank 0 tells of `sluice bench latency`: the table on stdout as rows come, JSON and CSV at the end.
#pragma once

#include <vector>

#include "bench/e2e/latency_bench.h"
#include "bench/e2e/machine_facts.h"
#include "bench/e2e/rank_info.h"

namespace sluice::bench {

class LatencyReport {
 public:
  // Prints the head. A report that is not of rank 0 collects and says nothing.
  LatencyReport(const LatencyOptions& options, const WorkerOptions& worker, std::vector<RankInfo> ranks);

  void add(const LatencyRow& row);
  // Prints the tail, writes the files. Returns kExitOk or kExitWrongData.
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
