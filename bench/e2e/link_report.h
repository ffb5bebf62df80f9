// What rank 0 tells of `sluice bench link`: the matrix on stdout row by row, who is slow, JSON and CSV.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/link_bench.h"
#include "bench/e2e/machine_facts.h"
#include "bench/e2e/rank_info.h"

namespace sluice::bench {

class LinkReport {
 public:
  // Prints the head. A report that is not of rank 0 says nothing.
  LinkReport(const LinkOptions& options, const WorkerOptions& worker,
             const std::vector<std::string>& reducers, std::vector<RankInfo> ranks);

  // `row`: GB/s with each reducer, and with all.
  void add(uint32_t rank, const std::vector<double>& row) const;
  // Prints the tail, writes the files. Returns kExitOk or kExitWrongData.
  [[nodiscard]] int finish(const LinkResults& results) const;

 private:
  [[nodiscard]] std::string name_of(const SlowLink& slow) const;
  void write_json(const LinkResults& results, const std::vector<SlowLink>& slow) const;
  void write_csv(const LinkResults& results) const;

  const LinkOptions& options_;
  const WorkerOptions& worker_;
  const std::vector<std::string>& reducers_;
  std::vector<RankInfo> ranks_;
  MachineFacts machine_;
};

}  // namespace sluice::bench
