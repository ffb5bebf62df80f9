// One row of the reduce benchmark: buffers, check, and rounds in which fold, load-only pass and memcpy take
// turns.
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

// Sources back to back in one arena, as the slots of a reducer lie, and a destination.
class ReduceBuffers {
 public:
  [[nodiscard]] static Result<ReduceBuffers> make(size_t sources, size_t bytes);

  // Random numbers of `t`; finite and of moderate size, so that no row is faster or slower for its specials.
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
  double load_only_gbps = 0;  // the same bytes, loads only
  double memcpy_gbps = 0;     // bytes copied per second, one source after another into the destination
  double ratio = 0;           // median over the rounds of fold / load-only
  size_t rounds = 0;
  size_t wrong = 0;  // elements that differ from the scalar reference
};

[[nodiscard]] ReduceRow measure_reduce(const ReduceBuffers& buffers, wire::DType t, wire::Op op,
                                       const kernels::FoldTarget& target, Nanos budget);

}  // namespace sluice::bench
