// `sluice bench reduce`: how fast the folds are on this machine, beside a pass that only loads the same
// buffers, and memcpy. No number without a check: every row's result is compared with the scalar reference in
// the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/units.h"
#include "wire/dtype.h"

namespace sluice::bench {

struct ReduceBenchOptions {
  std::vector<wire::DType> types;  // empty: all
  std::vector<wire::Op> ops;       // empty: all
  std::vector<std::string>
      targets;                // names as in kernels::fold_targets(); empty: the best one; "all": every one
  size_t bytes = 256 * kKiB;  // per source; rounded down to whole elements
  size_t sources = 8;         // 1..256
  Nanos budget = 200 * kMillisecond;  // time measured per row, at least; never fewer than 5 rounds
  std::string json_path;              // files written beside the table when not empty
  std::string csv_path;
};

// Prints the table to standard output. Returns kExitOk, or kExitWrongData when a result is wrong. Throws
// Failure: kExitUsage for bad options, kExitFailure when there is no memory or a file cannot be written.
[[nodiscard]] int run_reduce_bench(const ReduceBenchOptions& options);

}  // namespace sluice::bench
