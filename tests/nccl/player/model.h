// What an allreduce has to give, element by element and in no hurry: the arithmetic of wire/PROTOCOL.md
// section 7, written a second time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/nccl/player/words.h"

namespace player {

// Contribution of `seed`: element i depends on the seed and i only. Integers are any bits; floats have values
// near each other, far from each other, and now and then zeros, subnormals, infinities and NaN.
void fill(DataType type, uint64_t seed, size_t first, size_t count, std::byte* out);

// NaN in floats, all ones in integers: what may stand behind the end of the data.
void fill_stale(DataType type, size_t count, std::byte* out);

// Folds contributions[0], [1], ... in this order, `count` elements each.
void reduce(DataType type, ReduceOp op, const std::vector<const std::byte*>& contributions, size_t count,
            std::byte* out);

}  // namespace player
