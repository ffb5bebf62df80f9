#include "wire/payload/block_codec.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice::wire {
namespace {

using Values = std::array<float, kBlockValues>;

// Returns the largest finite magnitude of `size` values. `finite`: whether all are finite.
float largest_finite(const float* values, size_t size, bool& finite) noexcept {
  // Signed, because x86-64 without extensions compares vectors of signed integers only.
  constexpr int32_t kInfinity = 0x7f800000;
  int32_t largest = 0;
  int32_t largest_of_all = 0;
  for (size_t i = 0; i < size; ++i) {
    const auto magnitude = static_cast<int32_t>(bits_of(values[i]) & 0x7fffffff);
    const int32_t finite_magnitude = magnitude < kInfinity ? magnitude : 0;
    largest_of_all = magnitude > largest_of_all ? magnitude : largest_of_all;
    largest = finite_magnitude > largest ? finite_magnitude : largest;
  }
  finite = largest_of_all < kInfinity;
  return float_of(static_cast<uint32_t>(largest));
}

void encode_mxfp8(const Values& values, std::byte* block, const Rounding& rounding, uint64_t index) noexcept {
  auto* const scales = reinterpret_cast<uint8_t*>(block);
  auto* const codes = scales + kBlockScaleBytes;
  for (size_t at = 0; at < kBlockValues; at += Mxfp8::kGroup) {
    bool finite = true;
    const uint8_t code = Mxfp8::scale_code(largest_finite(&values[at], Mxfp8::kGroup, finite));
    const float inverse = Mxfp8::inverse(code);
    scales[at / Mxfp8::kGroup] = code;
    if (rounding.stochastic) {
      for (size_t i = at; i < at + Mxfp8::kGroup; ++i)
        codes[i] = Mxfp8::encode(values[i] * inverse, random_bits(rounding.seed, index + i));
    } else {
      std::array<uint32_t, Mxfp8::kGroup> wide;  // of one width, so that compilers use vectors
      for (size_t i = 0; i < Mxfp8::kGroup; ++i) wide[i] = Mxfp8::encode_wide(values[at + i] * inverse);
      for (size_t i = 0; i < Mxfp8::kGroup; ++i) codes[at + i] = static_cast<uint8_t>(wide[i]);
    }
  }
}

void encode_int8(const Values& values, std::byte* block, const Rounding& rounding, uint64_t index) noexcept {
  auto* const codes = reinterpret_cast<int8_t*>(block + kBlockScaleBytes);
  for (size_t at = 0; at < kBlockValues; at += Int8Block::kGroup) {
    bool finite = true;
    const float largest = largest_finite(&values[at], Int8Block::kGroup, finite);
    const float scale = finite ? Int8Block::scale(largest) : float_of(Int8Block::kScaleNan);
    std::memcpy(block + at / Int8Block::kGroup * sizeof scale, &scale, sizeof scale);
    if (!finite) {
      std::fill_n(codes + at, Int8Block::kGroup, int8_t{0});
      continue;
    }
    const float inverse = Int8Block::inverse(scale);
    if (rounding.stochastic) {
      for (size_t i = at; i < at + Int8Block::kGroup; ++i)
        codes[i] = Int8Block::encode(values[i] * inverse, random_bits(rounding.seed, index + i));
    } else {
      for (size_t i = at; i < at + Int8Block::kGroup; ++i) codes[i] = Int8Block::encode(values[i] * inverse);
    }
  }
}

void decode_mxfp8(const std::byte* block, Values& values) noexcept {
  const auto* const scales = reinterpret_cast<const uint8_t*>(block);
  const auto* const codes = scales + kBlockScaleBytes;
  for (size_t at = 0; at < kBlockValues; at += Mxfp8::kGroup) {
    const float scale = Mxfp8::scale(scales[at / Mxfp8::kGroup]);
    std::array<uint32_t, Mxfp8::kGroup> wide;  // of one width, so that compilers use vectors
    for (size_t i = 0; i < Mxfp8::kGroup; ++i) wide[i] = codes[at + i];
    for (size_t i = 0; i < Mxfp8::kGroup; ++i) values[at + i] = Mxfp8::decode_wide(wide[i]) * scale;
  }
}

void decode_int8(const std::byte* block, Values& values) noexcept {
  const auto* const codes = reinterpret_cast<const int8_t*>(block + kBlockScaleBytes);
  for (size_t at = 0; at < kBlockValues; at += Int8Block::kGroup) {
    float scale = 0;
    std::memcpy(&scale, block + at / Int8Block::kGroup * sizeof scale, sizeof scale);
    for (size_t i = at; i < at + Int8Block::kGroup; ++i) values[i] = static_cast<float>(codes[i]) * scale;
  }
}

}  // namespace

void encode_blocks(DType type, const float* values, size_t count, std::byte* blocks,
                   const Rounding& rounding) noexcept {
  Values block;
  for (size_t at = 0; at < count; at += kBlockValues, blocks += kBlockBytes) {
    const size_t used = std::min(count - at, kBlockValues);
    std::memcpy(block.data(), values + at, used * sizeof(float));
    std::fill(block.begin() + static_cast<ptrdiff_t>(used), block.end(), 0.0F);
    if (type == DType::kMxfp8)
      encode_mxfp8(block, blocks, rounding, rounding.first + at);
    else
      encode_int8(block, blocks, rounding, rounding.first + at);
  }
}

void decode_blocks(DType type, const std::byte* blocks, size_t count, float* values) noexcept {
  Values block;
  for (size_t at = 0; at < count; at += kBlockValues, blocks += kBlockBytes) {
    if (type == DType::kMxfp8)
      decode_mxfp8(blocks, block);
    else
      decode_int8(blocks, block);
    std::memcpy(values + at, block.data(), std::min(count - at, kBlockValues) * sizeof(float));
  }
}

bool are_valid_blocks(DType type, std::span<const std::byte> blocks) noexcept {
  if (type != DType::kInt8Block) return true;
  bool valid = true;
  for (size_t at = 0; at < blocks.size(); at += kBlockBytes) {
    const std::byte* const block = blocks.data() + at;
    uint32_t scales[2];
    std::memcpy(scales, block, sizeof scales);
    valid &= Int8Block::is_valid_scale(scales[0]) && Int8Block::is_valid_scale(scales[1]);
    uint8_t most_negative = 0;
    for (size_t i = kBlockScaleBytes; i < kBlockBytes; ++i)
      most_negative |= static_cast<uint8_t>(block[i] == std::byte{0x80} ? 1 : 0);
    valid &= most_negative == 0;
  }
  return valid;
}

}  // namespace sluice::wire
