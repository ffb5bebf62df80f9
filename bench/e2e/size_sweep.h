// The sizes that a benchmark goes through.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::bench {

struct SizeSweep {
  uint64_t min_bytes = 0;
  uint64_t max_bytes = 0;
  uint64_t factor = 2;  // 1: steps of step_bytes
  uint64_t step_bytes = 0;
};

// Failure(kExitUsage) when they have no end or there is none.
[[nodiscard]] std::vector<uint64_t> sizes_of(const SizeSweep& sweep);

}  // namespace sluice::bench
