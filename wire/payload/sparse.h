// The sparse encoding of a payload (protocol.md section 9, "Sparse payloads"): blocks of zero bytes do not
// travel. A block is 64 elements, or one element of a block type; the last one may be shorter. The encoded
// payload has the other blocks in order, then a bitmap with a bit for each block, 1 where it is present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/dtype.h"

namespace sluice::wire {

[[nodiscard]] constexpr size_t sparse_block_bytes(DType t) noexcept {
  return is_block(t) ? size_of(t) : 64 * size_of(t);
}

// Returns the length of the encoded payload if that saves at least an eighth and 64 bytes, otherwise 0. Reads
// the first word of each block that is not zero, so dense payloads cost little. `payload` has at most
// kMaxPayload bytes.
[[nodiscard]] size_t sparse_length(std::span<const std::byte> payload, DType t) noexcept;

// Encodes a payload for which sparse_length() is not 0 into `out`, which may be the payload's own memory.
// Returns the length.
size_t encode_sparse(std::span<const std::byte> payload, DType t, std::byte* out) noexcept;

// Expands the first `length` bytes of `data` to `expanded` bytes in place. Untrusted: returns false, with
// undefined content, unless the bitmap has the blocks that `length` requires and zeros in its last bits.
// `length` and `expanded` are at most kMaxPayload.
[[nodiscard]] bool expand_sparse(std::byte* data, size_t length, size_t expanded, DType t) noexcept;

}  // namespace sluice::wire
