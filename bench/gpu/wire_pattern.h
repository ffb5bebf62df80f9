// A pattern (bench/e2e/pattern.h) for elements that travel in another form than they lie in memory: it is one
// of the form on the wire, widened, so that no rounding is left and a check is a comparison of bits here too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/e2e/pattern.h"
#include "gpu_client/pipeline/cast.h"
#include "wire/dtype.h"

namespace sluice::bench {

class WirePattern {
 public:
  WirePattern(wire::DType dtype, wire::Op op, pipeline::WireCast cast, uint32_t ranks,
              uint64_t seed) noexcept;

  // What `rank` contributes, into `count` elements at `out`.
  void fill(uint32_t rank, uint64_t count, std::byte* out) const;
  [[nodiscard]] uint64_t bytes_of(uint64_t count) const noexcept { return count * wire::size_of(dtype_); }
  // Elements that are not what the reduction gives. `data` is spoilt.
  [[nodiscard]] uint64_t count_wrong(std::byte* data, uint64_t count) const;

 private:
  wire::DType dtype_;
  pipeline::WireCast cast_;
  Pattern pattern_;
};

}  // namespace sluice::bench
