// Converts between the values of a shard, f32, and the types in which PUSH and PULL carry them (protocol.md
// section 16): f32, f16, bf16, and blocks of 256 values. half_floats.h and block_codec.h have the arithmetic.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "wire/dtype.h"
#include "wire/payload/block_format.h"

namespace sluice::store {

[[nodiscard]] constexpr bool is_body_type(wire::DType t) noexcept {
  return t == wire::DType::kF32 || t == wire::DType::kF16 || t == wire::DType::kBf16 || wire::is_block(t);
}

// The values in an element of `t`, which is a body type.
[[nodiscard]] constexpr uint64_t values_per_element(wire::DType t) noexcept {
  return wire::is_block(t) ? wire::kBlockValues : 1;
}
// The bytes of `values` values; the last block may have fewer than 256.
[[nodiscard]] constexpr uint64_t body_bytes(wire::DType t, uint64_t values) noexcept {
  const uint64_t per_element = values_per_element(t);
  return (values + per_element - 1) / per_element * wire::size_of(t);
}
// The position of the value that begins at byte `offset`, a multiple of an element.
[[nodiscard]] constexpr uint64_t value_at(wire::DType t, uint64_t offset) noexcept {
  return offset / wire::size_of(t) * values_per_element(t);
}

// The values of a shard that a piece of its body has, which begins at byte `offset`.
template <typename Value>
[[nodiscard]] std::span<Value> values_of_piece(std::span<Value> shard, wire::DType t, uint64_t offset,
                                               std::span<const std::byte> piece) {
  const uint64_t first = value_at(t, offset);
  return shard.subspan(first, std::min(value_at(t, piece.size()), shard.size() - first));
}

// `out` has body_bytes() of the values, little-endian. Values that a last block lacks are 0.
void encode_body(wire::DType t, std::span<const float> values, std::byte* out) noexcept;
// The opposite, of bytes that a peer sent. kBadField: a malformed block.
[[nodiscard]] Status decode_body(wire::DType t, const std::byte* bytes, std::span<float> values) noexcept;

}  // namespace sluice::store
