// Class GpuReport prints the table of `sluice-gpu-bench` row by row and writes the JSON and CSV files.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/worker/rank_info.h"
#include "bench/gpu/gpu_bench.h"

namespace sluice::bench {

// Returns the device of each rank, for example "cuda:1" or "host", sorted by rank. Collective.
[[nodiscard]] std::vector<std::string> gather_devices(WorkerSession& session, const BenchDevice& device);

class GpuReport {
 public:
  // Prints the header. On ranks other than 0 the report collects rows and prints nothing.
  GpuReport(const GpuBenchOptions& options, const WorkerOptions& worker, const BenchDevice& device,
            std::vector<RankInfo> ranks, std::vector<std::string> devices, const CopyLimits& limits);

  void add(const GpuRow& row);
  // Prints the footer and writes the files. Returns kExitOk or kExitCheckFailed.
  [[nodiscard]] int finish();

 private:
  [[nodiscard]] std::string header_text(const BenchDevice& device) const;
  // Returns the maximum ratio of the rows with the largest size; 0 without rows.
  [[nodiscard]] double ratio_at_largest() const;
  void write_json(double average_bus_bw, uint64_t wrong) const;
  void write_csv() const;

  const GpuBenchOptions& options_;
  const WorkerOptions& worker_;
  std::vector<RankInfo> ranks_;
  std::vector<std::string> devices_;
  CopyLimits limits_;
  MachineFacts machine_;  // of the host of rank 0
  std::vector<GpuRow> rows_;
};

}  // namespace sluice::bench
