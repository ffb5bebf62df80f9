// Converts between f32, in which versions are stored, and the types of tensors: f32, f16, bf16.
//
// To 16 bits the value is rounded to the nearest, ties to even; too large a value becomes infinity. From 16
// bits it is exact. A NaN becomes the quiet NaN without a sign.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/dtype.h"

namespace sluice::store {

[[nodiscard]] uint16_t to_f16(float x) noexcept;
[[nodiscard]] uint16_t to_bf16(float x) noexcept;
[[nodiscard]] float from_f16(uint16_t bits) noexcept;
[[nodiscard]] float from_bf16(uint16_t bits) noexcept;

// `out` has values.size() little-endian elements of `dtype`, which is one of the three types.
void store_elements(wire::DType dtype, std::span<const float> values, std::byte* out) noexcept;
void load_elements(wire::DType dtype, const std::byte* bytes, std::span<float> values) noexcept;

}  // namespace sluice::store
