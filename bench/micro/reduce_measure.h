// Measures one row of the reduce benchmark: fold, load-only loop and memcpy in interleaved rounds, then the
// check.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/result.h"
#include "core/units.h"
#include "reducer/kernels/fold.h"
#include "wire/dtype.h"

namespace sluice::bench {

// Class ReduceBuffers holds the sources, adjacent in one arena like the slots of a reducer, and the
// destination.
class ReduceBuffers {
 public:
  [[nodiscard]] static Result<ReduceBuffers> make(size_t sources, size_t bytes);

  // Fills the sources with random numbers of `t`. Floats are normal and of similar size, because special
  // values may change the speed.
  void fill(wire::DType t);

  [[nodiscard]] std::span<const std::byte* const> sources() const { return pointers_; }
  [[nodiscard]] std::byte* destination() const { return destination_; }
  [[nodiscard]] std::byte* expected() const { return expected_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  Arena arena_;
  std::vector<std::byte*> writable_;
  std::vector<const std::byte*> pointers_;
  std::byte* destination_ = nullptr;
  std::byte* expected_ = nullptr;
  size_t bytes_ = 0;
};

struct ReduceRow {
  wire::DType type;
  wire::Op op;
  const char* target;
  double fold_gbps = 0;       // 10^9 bytes of all sources per second, median of the rounds
  double load_only_gbps = 0;  // 10^9 bytes loaded per second
  double memcpy_gbps = 0;     // 10^9 bytes copied per second, one source after another to the destination
  double ratio = 0;           // median of fold / load-only of the rounds
  size_t rounds = 0;
  size_t wrong = 0;  // elements that differ from the scalar reference
};

[[nodiscard]] ReduceRow measure_reduce(const ReduceBuffers& buffers, wire::DType t, wire::Op op,
                                       const kernels::FoldTarget& target, Nanos budget);

}  // namespace sluice::bench
