#include "bench/e2e/workload/size_sweep.h"

#include <fmt/format.h>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::bench {

std::vector<uint64_t> sizes_of(const SizeSweep& sweep) {
  if (sweep.min_bytes > sweep.max_bytes) {
    throw Failure(kExitUsage, fmt::format("minbytes {} B is greater than maxbytes {} B", sweep.min_bytes,
                                          sweep.max_bytes));
  }
  if (sweep.min_bytes == 0) throw Failure(kExitUsage, "minbytes is 0; expected a positive size");
  if (sweep.factor <= 1 && sweep.step_bytes == 0)
    throw Failure(kExitUsage, "the sizes do not grow: set a step in bytes or a factor above 1");
  std::vector<uint64_t> sizes;
  for (uint64_t size = sweep.min_bytes; size <= sweep.max_bytes;
       size = sweep.factor > 1 ? size * sweep.factor : size + sweep.step_bytes) {
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace sluice::bench
