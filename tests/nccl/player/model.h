// The reference model of an allreduce: a second, element-wise implementation of docs/reference/protocol.md
// section 7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/nccl/player/nccl_types.h"

namespace player {

// Writes the contribution of `seed`. Element i depends on the seed and i only. Integers have random bits.
// Floats include similar and very different magnitudes, zeros, subnormals, infinities and NaN.
void fill(DataType type, uint64_t seed, size_t first, size_t count, std::byte* out);

// Writes padding as it may follow the data: NaN for floats, all ones for integers.
void fill_stale(DataType type, size_t count, std::byte* out);

// Folds contributions[0], [1], ... in this order, `count` elements each.
void reduce(DataType type, ReduceOp op, const std::vector<const std::byte*>& contributions, size_t count,
            std::byte* out);

}  // namespace player
