#include "bench/e2e/size_sweep.h"

#include <fmt/format.h>

#include "bench/e2e/exit_codes.h"

namespace sluice::bench {

std::vector<uint64_t> sizes_of(const SizeSweep& sweep) {
  if (sweep.min_bytes > sweep.max_bytes) {
    throw Failure(kExitUsage,
                  fmt::format("minbytes {} is more than maxbytes {}", sweep.min_bytes, sweep.max_bytes));
  }
  if (sweep.min_bytes == 0) throw Failure(kExitUsage, "minbytes is 0");
  if (sweep.factor <= 1 && sweep.step_bytes == 0)
    throw Failure(kExitUsage, "neither a step in bytes nor a factor above 1");
  std::vector<uint64_t> sizes;
  for (uint64_t size = sweep.min_bytes; size <= sweep.max_bytes;
       size = sweep.factor > 1 ? size * sweep.factor : size + sweep.step_bytes) {
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace sluice::bench
