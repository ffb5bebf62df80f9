// Scans the values of one rank in one chunk for gradient health: non-finite values, the largest magnitude,
// and from a sample the norm and the fraction of zeros.
//
// The count of non-finite values and the largest magnitude cover every value. The sample covers the values
// with index % 1024 < 64, by index within the chunk; of a block type the blocks with index % 64 == 0. Results
// do not depend on how a chunk is divided into calls, except for rounding in `square_sum`.
//
// The vector code is compiled for several instruction sets, like the folds (fold.h), and all return the same
// bits. Any thread. No function here allocates or traps. Data may have any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/dtype.h"

namespace sluice::kernels {

struct HealthStats {
  uint64_t non_finite = 0;  // NaNs and infinities
  double largest = 0;       // magnitude of a finite value; of integers 1 if any value is not 0
  // Of the sample, which integers do not have.
  double square_sum = 0;  // of the finite values
  uint64_t sampled = 0;   // values
  uint64_t zeros = 0;     // of them

  [[nodiscard]] bool all_zero() const noexcept { return largest == 0 && non_finite == 0; }
  void add(const HealthStats& other) noexcept {
    non_finite += other.non_finite;
    if (other.largest > largest) largest = other.largest;
    square_sum += other.square_sum;
    sampled += other.sampled;
    zeros += other.zeros;
  }
};

inline constexpr size_t kSampleRun = 64;       // consecutive values in the sample
inline constexpr size_t kSamplePeriod = 1024;  // values from one run to the next
inline constexpr size_t kSampledBlocks = 64;   // of a block type, every 64th block is in the sample

// Adds the statistics of `count` elements to `stats`. `first` is the index of the first one in its chunk.
using ScanFunction = void (*)(const std::byte* data, size_t first, size_t count, HealthStats& stats) noexcept;

// The scan of this CPU's best target. `t` must be valid.
[[nodiscard]] ScanFunction find_scan(wire::DType t) noexcept;

// For tests and benchmarks: the targets that this CPU can run, best first.
struct ScanTarget {
  const char* name;
  ScanFunction (*find)(wire::DType t) noexcept;
};
[[nodiscard]] std::span<const ScanTarget> scan_targets() noexcept;

}  // namespace sluice::kernels
