// Class SoakPlan draws the operations of a soak from a seed. The same seed produces the same operations on
// every rank and in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "wire/dtype.h"

namespace sluice::bench {

// How an operation brings the sum to all ranks. Each method but the first is two collectives.
enum class SoakMethod { kAllreduce, kReduceScatterAllGather, kReduceBroadcast };

struct SoakOperation {
  SoakMethod method = SoakMethod::kAllreduce;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  size_t count = 0;   // elements; may be 0
  size_t offset = 0;  // offset of the data from the start of the buffers in elements, below kSoakOffsets
  bool in_place = false;
  uint64_t seed = 0;  // of the data
};

inline constexpr size_t kSoakOffsets = 16;

class SoakPlan {
 public:
  // Draws at most `open` concurrent operations of at most `max_bytes` each.
  SoakPlan(uint64_t seed, uint32_t open, uint64_t max_bytes);

  // Returns 1 to `open` operations. For a size, the power of two below it has a
  // uniform distribution, and so has the size within it.
  [[nodiscard]] std::vector<SoakOperation> next_round();

 private:
  [[nodiscard]] uint64_t below(uint64_t bound);
  [[nodiscard]] SoakOperation draw();

  std::mt19937_64 random_;  // the standard defines its sequence, but not that of the distributions
  uint32_t open_;
  uint64_t max_bytes_;
};

}  // namespace sluice::bench
