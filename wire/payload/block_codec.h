// Encodes f32 into blocks of mxfp8 or int8-block and back, on the host, and checks untrusted blocks.
// block_format.h has the arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/dtype.h"
#include "wire/payload/block_format.h"

namespace sluice::wire {

// How encode_blocks() rounds. `seed` and the index of a value (first + its position) choose the random bits.
struct Rounding {
  bool stochastic = false;
  uint64_t seed = 0;
  uint64_t first = 0;
};

// Encodes `count` values into ceil(count / 256) blocks at `blocks`; values beyond `count` are 0. `type` is a
// block type. Any alignment, no overlap.
void encode_blocks(DType type, const float* values, size_t count, std::byte* blocks,
                   const Rounding& rounding = {}) noexcept;
// Decodes the first `count` values of blocks into `values`.
void decode_blocks(DType type, const std::byte* blocks, size_t count, float* values) noexcept;

// Checks untrusted blocks; `blocks` is a multiple of kBlockBytes. mxfp8 has a meaning for all bytes. In
// int8-block it refuses scales that is_valid_scale() refuses, and the code -128.
[[nodiscard]] bool are_valid_blocks(DType type, std::span<const std::byte> blocks) noexcept;

}  // namespace sluice::wire
