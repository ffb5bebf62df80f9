// What rank 0 tells of `sluice bench soak`: a line now and then on stdout, a summary, JSON and CSV at the
// end.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/e2e/machine_facts.h"
#include "bench/e2e/rank_info.h"
#include "bench/e2e/soak_bench.h"

namespace sluice::bench {

class SoakReport {
 public:
  // Prints the head. A report that is not of rank 0 says nothing.
  SoakReport(const SoakOptions& options, const WorkerOptions& worker, std::vector<RankInfo> ranks,
             uint64_t seed);

  void add(const SoakProgress& progress);
  // Prints the summary, writes the files. Returns kExitOk or kExitWrongData.
  [[nodiscard]] int finish(const SoakEnd& end) const;

 private:
  void write_json(const SoakEnd& end) const;
  void write_csv() const;

  const SoakOptions& options_;
  const WorkerOptions& worker_;
  const std::vector<RankInfo> ranks_;
  const uint64_t seed_;
  MachineFacts machine_;
  std::vector<SoakProgress> lines_;
};

}  // namespace sluice::bench
