// Defines what a fold computes, one element at a time; every vector target equals it bit for bit.
//
// Written for readability, not for speed. Only tests and the benchmark's own check use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reducer/kernels/float_format.h"
#include "reducer/kernels/fold.h"
#include "wire/dtype.h"
#include "wire/sum_order.h"

namespace sluice::kernels {

// The exact value of a pattern of a format of at most 16 bits. Any NaN becomes the canonical f32 NaN.
[[nodiscard]] float reference_widen(const FloatFormat& format, uint32_t pattern) noexcept;

// The pattern nearest to `value`, ties to even, subnormals kept, for a format of at most 16 bits. FloatFormat
// defines overflow and NaN.
[[nodiscard]] uint32_t reference_round(const FloatFormat& format, float value) noexcept;

// Same arguments as FoldFunction.
void reference_fold(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order,
                    std::span<const std::byte* const> sources, size_t count, uint32_t divisor,
                    std::byte* destination) noexcept;

}  // namespace sluice::kernels
