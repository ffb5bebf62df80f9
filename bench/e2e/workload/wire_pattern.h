// Class WirePattern is a Pattern (pattern.h) for elements whose wire type differs from the type in memory.
//
// Values that travel as bf16 or f16 are a pattern of that type, widened. They need no rounding, so the result
// has a closed form. Values that travel in blocks are rounded; their result is computed from the
// contributions of all ranks, as protocol.md defines it. A check is a bitwise comparison in both cases.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/e2e/workload/pattern.h"
#include "gpu_client/pipeline/cast.h"
#include "wire/dtype.h"

namespace sluice::bench {

class WirePattern {
 public:
  // `zeros`: the fraction of the blocks of 64 elements that are zero on all ranks, 0 to 1.
  WirePattern(wire::DType dtype, wire::Op op, pipeline::WireCast cast, uint32_t ranks, uint64_t seed,
              double zeros = 0) noexcept;

  // Writes the contribution of `rank` to `count` elements at `out`.
  void fill(uint32_t rank, uint64_t count, std::byte* out) const;
  [[nodiscard]] uint64_t bytes_of(uint64_t count) const noexcept { return count * wire::size_of(dtype_); }
  // Returns the number of elements that differ from the expected result. Overwrites `data`.
  [[nodiscard]] uint64_t count_wrong(std::byte* data, uint64_t count) const;

 private:
  [[nodiscard]] uint64_t count_wrong_in_blocks(const std::byte* data, uint64_t count) const;
  [[nodiscard]] bool is_zero(uint64_t element) const noexcept;
  void clear_zeros(uint64_t count, std::byte* data) const noexcept;
  void widen_in_place(uint64_t count, std::byte* data) const noexcept;

  wire::DType dtype_;
  wire::Op op_;
  pipeline::WireCast cast_;
  uint32_t ranks_;
  uint64_t seed_;
  double zeros_;
  Pattern pattern_;
};

// The cast of an operation if f32 travels as `wire`: kNone unless it is a sum or average of f32.
[[nodiscard]] pipeline::WireCast cast_of(pipeline::WireCast wire, wire::DType dtype, wire::Op op) noexcept;

}  // namespace sluice::bench
