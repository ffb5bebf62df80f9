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

// The same for the options of a benchmark with the size options of nccl-tests.
template <typename Options>
requires requires(const Options& o) {
  o.step_factor + o.step_bytes;
}
[[nodiscard]] std::vector<uint64_t> sizes_of(const Options& o) {
  return sizes_of(SizeSweep{.min_bytes = o.min_bytes,
                            .max_bytes = o.max_bytes,
                            .factor = o.step_factor,
                            .step_bytes = o.step_bytes});
}

}  // namespace sluice::bench
