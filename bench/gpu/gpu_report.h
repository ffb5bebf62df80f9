// What rank 0 tells of `sluice-gpu-bench`: the table on stdout as rows come, JSON and CSV at the end.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/machine_facts.h"
#include "bench/e2e/rank_info.h"
#include "bench/gpu/copy_limits.h"
#include "bench/gpu/gpu_bench.h"

namespace sluice::bench {

// Every rank's device, "cuda:1" or "host", in order. Collective.
[[nodiscard]] std::vector<std::string> gather_devices(WorkerSession& session, const BenchDevice& device);

class GpuReport {
 public:
  // Prints the head. A report that is not of rank 0 collects and says nothing.
  GpuReport(const GpuBenchOptions& options, const WorkerOptions& worker, const BenchDevice& device,
            std::vector<RankInfo> ranks, std::vector<std::string> devices, const CopyLimits& limits);

  void add(const GpuRow& row);
  // Prints the tail, writes the files. Returns kExitOk or kExitWrongData.
  [[nodiscard]] int finish();

 private:
  [[nodiscard]] std::string head(const BenchDevice& device) const;
  // The greatest of the largest size's; 0 without rows.
  [[nodiscard]] double ratio_at_end() const;
  void write_json(double average_bus_bw, uint64_t wrong) const;
  void write_csv() const;

  const GpuBenchOptions& options_;
  const WorkerOptions& worker_;
  std::vector<RankInfo> ranks_;
  std::vector<std::string> devices_;
  CopyLimits limits_;
  MachineFacts machine_;  // rank 0's
  std::vector<GpuRow> rows_;
};

}  // namespace sluice::bench
