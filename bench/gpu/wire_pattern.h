// Class WirePattern is a Pattern (bench/e2e/workload/pattern.h) for elements whose wire type differs from the
// type in memory. Its values are a pattern of the wire type, widened. They need no rounding, so a check is a
// bitwise comparison.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/e2e/workload/pattern.h"
#include "gpu_client/pipeline/cast.h"
#include "wire/dtype.h"

namespace sluice::bench {

class WirePattern {
 public:
  WirePattern(wire::DType dtype, wire::Op op, pipeline::WireCast cast, uint32_t ranks,
              uint64_t seed) noexcept;

  // Writes the contribution of `rank` to `count` elements at `out`.
  void fill(uint32_t rank, uint64_t count, std::byte* out) const;
  [[nodiscard]] uint64_t bytes_of(uint64_t count) const noexcept { return count * wire::size_of(dtype_); }
  // Returns the number of elements that differ from the expected result. Overwrites `data`.
  [[nodiscard]] uint64_t count_wrong(std::byte* data, uint64_t count) const;

 private:
  wire::DType dtype_;
  pipeline::WireCast cast_;
  Pattern pattern_;
};

}  // namespace sluice::bench
