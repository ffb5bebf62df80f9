#include "wire/payload/sparse.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/units.h"
#include "wire/frame.h"

namespace sluice::wire {
namespace {

// The smallest block has 64 bytes.
constexpr size_t kMaxBitmap = kMaxPayload / 64 / 8;
// The extension EXPANDED and the work of both ends cost about as much as these bytes.
constexpr size_t kLeastSaving = 64;
using Bitmap = std::array<std::byte, kMaxBitmap>;

uint64_t word_at(const std::byte* at) noexcept {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

bool is_zero(const std::byte* block, size_t bytes) noexcept {
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    if (word_at(block + at) != 0) return false;
  }
  for (; at < bytes; ++at) {
    if (block[at] != std::byte{0}) return false;
  }
  return true;
}

bool has_bit(const Bitmap& bitmap, size_t i) noexcept {
  return (std::to_integer<unsigned>(bitmap[i / 8]) >> (i % 8) & 1U) != 0;
}

}  // namespace

size_t sparse_length(std::span<const std::byte> payload, DType t) noexcept {
  const size_t block = sparse_block_bytes(t);
  const size_t bitmap = div_ceil(div_ceil(payload.size(), block), 8);
  if (payload.size() < 2 * kLeastSaving) return 0;
  const size_t limit = payload.size() - std::max(div_ceil(payload.size(), 8), kLeastSaving);
  size_t length = bitmap;
  for (size_t at = 0; at < payload.size() && length <= limit; at += block) {
    const size_t bytes = std::min(block, payload.size() - at);
    if (!is_zero(payload.data() + at, bytes)) length += bytes;
  }
  return length <= limit ? length : 0;
}

size_t encode_sparse(std::span<const std::byte> payload, DType t, std::byte* out) noexcept {
  const size_t block = sparse_block_bytes(t);
  const size_t bitmap_bytes = div_ceil(div_ceil(payload.size(), block), 8);
  Bitmap bitmap;
  std::fill_n(bitmap.begin(), bitmap_bytes, std::byte{0});
  std::byte* to = out;
  for (size_t at = 0, i = 0; at < payload.size(); at += block, ++i) {
    const size_t bytes = std::min(block, payload.size() - at);
    if (is_zero(payload.data() + at, bytes)) continue;
    if (to != payload.data() + at) std::memmove(to, payload.data() + at, bytes);
    to += bytes;
    bitmap[i / 8] |= std::byte{1} << (i % 8);
  }
  std::memcpy(to, bitmap.data(), bitmap_bytes);
  return static_cast<size_t>(to - out) + bitmap_bytes;
}

bool expand_sparse(std::byte* data, size_t length, size_t expanded, DType t) noexcept {
  const size_t block = sparse_block_bytes(t);
  const size_t blocks = div_ceil(expanded, block);
  const size_t bitmap_bytes = div_ceil(blocks, 8);
  if (length < bitmap_bytes || expanded == 0 || bitmap_bytes > kMaxBitmap) return false;
  Bitmap bitmap;  // a copy, because the blocks expand over it
  std::memcpy(bitmap.data(), data + length - bitmap_bytes, bitmap_bytes);
  size_t present = 0;
  for (size_t i = 0; i < blocks; ++i) {
    if (has_bit(bitmap, i)) present += std::min(block, expanded - i * block);
  }
  for (size_t i = blocks; i < 8 * bitmap_bytes; ++i) {
    if (has_bit(bitmap, i)) return false;
  }
  if (present + bitmap_bytes != length) return false;
  // From the end, so that no block is overwritten before it is moved.
  const std::byte* from = data + present;
  for (size_t i = blocks; i-- > 0;) {
    std::byte* const to = data + i * block;
    const size_t bytes = std::min(block, expanded - i * block);
    if (!has_bit(bitmap, i)) {
      std::memset(to, 0, bytes);
      continue;
    }
    from -= bytes;
    if (from != to) std::memmove(to, from, bytes);
  }
  return true;
}

}  // namespace sluice::wire
