// What a fold computes, one element at a time: the definition that every vector target equals bit for bit.
// Written to be read, not to be fast; used by tests, by the benchmark's own check, and by nothing that
// carries data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reducer/kernels/float_format.h"
#include "reducer/kernels/fold.h"
#include "wire/dtype.h"

namespace sluice::kernels {

// The value of a pattern of a format of at most 16 bits; exact. Any NaN becomes f32's canonical one.
[[nodiscard]] float reference_widen(const FloatFormat& format, uint32_t pattern) noexcept;

// The pattern nearest to `value`, ties to even, subnormals kept; see FloatFormat for overflow and NaN. At
// most 16 bits.
[[nodiscard]] uint32_t reference_round(const FloatFormat& format, float value) noexcept;

// Same arguments as FoldFunction.
void reference_fold(wire::DType t, wire::Op op, Stage stage, std::span<const std::byte* const> sources,
                    size_t count, uint32_t divisor, std::byte* destination) noexcept;

}  // namespace sluice::kernels
