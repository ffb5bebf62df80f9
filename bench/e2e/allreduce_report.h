// What rank 0 tells: the table on stdout as rows come, JSON and CSV at the end.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/allreduce_bench.h"
#include "bench/e2e/machine_facts.h"
#include "bench/e2e/nccl_table.h"
#include "bench/e2e/rank_info.h"

namespace sluice::bench {

class AllreduceReport {
 public:
  // Prints the preamble. A report that is not of rank 0 (`speaks` false) collects and says nothing.
  AllreduceReport(const AllreduceOptions& options, const WorkerOptions& worker,
                  const std::vector<RankInfo>& ranks);

  void add(const Row& row);
  // Prints the tail, writes the files. Returns kExitOk or kExitWrongData.
  [[nodiscard]] int finish();

 private:
  void write_json(double average_bus_bw, uint64_t wrong) const;
  void write_csv() const;

  AllreduceOptions options_;
  WorkerOptions worker_;
  MachineFacts machine_;  // rank 0's
  std::vector<RankInfo> ranks_;
  std::vector<Row> rows_;
  std::string start_time_;
  bool speaks_;
};

}  // namespace sluice::bench
