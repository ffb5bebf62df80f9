// Struct SizeSweep defines the sequence of message sizes of a benchmark.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::bench {

struct SizeSweep {
  uint64_t min_bytes = 0;
  uint64_t max_bytes = 0;
  uint64_t factor = 2;  // 1: the size grows by step_bytes
  uint64_t step_bytes = 0;
};

// Throws Failure(kExitUsage) when the sequence is empty or would not end.
[[nodiscard]] std::vector<uint64_t> sizes_of(const SizeSweep& sweep);

}  // namespace sluice::bench
