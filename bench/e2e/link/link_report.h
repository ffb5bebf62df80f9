// Class LinkReport prints the matrix of `sluice bench link` row by row and the slow links, and writes the
// JSON and CSV files.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/link/link_bench.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/worker/rank_info.h"

namespace sluice::bench {

class LinkReport {
 public:
  // Prints the header. On ranks other than 0 the report prints nothing.
  LinkReport(const LinkOptions& options, const WorkerOptions& worker,
             const std::vector<std::string>& reducers, std::vector<RankInfo> ranks);

  // `row`: GB/s with each reducer and, last, with all reducers.
  void add(uint32_t rank, const std::vector<double>& row) const;
  // Prints the footer and writes the files. Returns kExitOk or kExitWrongData.
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
