// Class AllreduceReport prints the table of `sluice bench allreduce` row by row and writes the JSON and CSV
// files.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/allreduce/allreduce_bench.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/nccl_table.h"
#include "bench/e2e/worker/rank_info.h"

namespace sluice::bench {

// Returns the variables that configure a run. The whole environment may hold secrets.
[[nodiscard]] std::vector<std::string> recorded_environment();

class AllreduceReport {
 public:
  // Prints the preamble. On ranks other than 0 the report collects rows and prints nothing.
  AllreduceReport(const AllreduceOptions& options, const WorkerOptions& worker,
                  const std::vector<RankInfo>& ranks);

  void add(const Row& row);
  // Prints the footer and writes the files. Returns kExitOk or kExitCheckFailed.
  [[nodiscard]] int finish();

 private:
  void write_json(double average_bus_bw, uint64_t wrong) const;
  void write_csv() const;

  AllreduceOptions options_;
  WorkerOptions worker_;
  MachineFacts machine_;  // of the host of rank 0
  std::vector<RankInfo> ranks_;
  std::vector<Row> rows_;
  std::string start_time_;
  bool is_rank_zero_;
};

}  // namespace sluice::bench
