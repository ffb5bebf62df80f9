// Runs `sluice bench reduce`: the bandwidth of the fold kernels on this machine, compared with a loop that
// only loads the same buffers and with memcpy. The result of each row is checked against the scalar reference
// in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/units.h"
#include "wire/dtype.h"
#include "wire/sum_order.h"

namespace sluice::bench {

struct ReduceBenchOptions {
  std::vector<wire::DType> types;  // empty: all
  std::vector<wire::Op> ops;       // empty: all
  // Names of kernels::fold_targets(); empty: the best target; "all": every target.
  std::vector<std::string> targets;
  std::vector<wire::SumOrder> orders = {wire::SumOrder::kTree};
  size_t bytes = 256 * kKiB;          // per source; rounded down to whole elements
  size_t sources = 8;                 // 1..2048; more than eight in groups, as a reducer does
  Nanos budget = 200 * kMillisecond;  // minimum time per row; at least 5 rounds
  std::string json_path;              // output files; empty: none
  std::string csv_path;
};

// Prints the table to stdout. Returns kExitOk, or kExitCheckFailed when a result is wrong. Throws Failure:
// kExitUsage for invalid options, kExitFailure when memory is not available or a file cannot be written.
[[nodiscard]] int run_reduce_bench(const ReduceBenchOptions& options);

}  // namespace sluice::bench
