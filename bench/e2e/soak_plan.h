// What a soak does, drawn from a seed: the same on every rank, and again when the same seed is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "wire/dtype.h"

namespace sluice::bench {

struct SoakOperation {
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  size_t count = 0;   // elements; now and then 0
  size_t offset = 0;  // elements that its data is off the buffers' alignment, below kSoakOffsets
  bool in_place = false;
  uint64_t seed = 0;  // of its data
};

inline constexpr size_t kSoakOffsets = 16;

class SoakPlan {
 public:
  // At most `open` operations at once, none above `max_bytes`.
  SoakPlan(uint64_t seed, uint32_t open, uint64_t max_bytes);

  // The operations that are open at once next, 1 to `open`. Sizes are spread evenly over their magnitudes.
  [[nodiscard]] std::vector<SoakOperation> next_round();

 private:
  [[nodiscard]] uint64_t below(uint64_t bound);
  [[nodiscard]] SoakOperation draw();

  std::mt19937_64 random_;  // the standard says its numbers, unlike those of the distributions
  uint32_t open_;
  uint64_t max_bytes_;
};

}  // namespace sluice::bench
