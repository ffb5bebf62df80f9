#include "tests/fuzz/payload_model.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/bytes.h"

namespace sluice::fuzz {
namespace {

constexpr size_t kBlockBytes = 264;
constexpr size_t kScaleBytes = 8;

std::vector<std::span<const std::byte>> blocks_of(std::span<const std::byte> payload, wire::DType t) {
  const size_t most = wire::is_block(t) ? kBlockBytes : 64 * wire::size_of(t);
  std::vector<std::span<const std::byte>> blocks;
  while (!payload.empty()) {
    blocks.push_back(payload.first(std::min(most, payload.size())));
    payload = payload.subspan(blocks.back().size());
  }
  return blocks;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

float float_at(const std::byte* p) {
  return std::bit_cast<float>(load_le<uint32_t>(p));
}

bool is_valid_scale(float scale) {
  const auto pattern = std::bit_cast<uint32_t>(scale);
  if (pattern == 0 || pattern == 0x7fc00000) return true;
  return std::isnormal(scale) && scale > 0 && pattern % 256 == 0;
}

// f8e4m3: sign, 4 bits of exponent, 3 of mantissa. No infinity, one NaN.
double value_of_e4m3(unsigned code) {
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(code >> 3 & 15);
  const int mantissa = static_cast<int>(code & 7);
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  return sign * (exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
}

// Exact in double for both types.
double value_in_block(const std::byte* block, size_t i, wire::DType t) {
  const std::byte code = block[kScaleBytes + i];
  if (t == wire::DType::kInt8Block) {
    const double scale = float_at(block + i / 128 * 4);
    return std::isnan(scale) ? scale : static_cast<int8_t>(code) * scale;
  }
  const auto scale = std::to_integer<int>(block[i / 32]);
  if (scale == 255) return std::numeric_limits<double>::quiet_NaN();
  return value_of_e4m3(std::to_integer<unsigned>(code)) * std::ldexp(1.0, scale - 127);
}

}  // namespace

Bytes sparse_payload(std::span<const std::byte> payload, wire::DType t) {
  const auto blocks = blocks_of(payload, t);
  Bytes out;
  Bytes bitmap((blocks.size() + 7) / 8);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (is_zero(blocks[i])) continue;
    out.insert(out.end(), blocks[i].begin(), blocks[i].end());
    bitmap[i / 8] |= static_cast<std::byte>(1u << i % 8);
  }
  out.insert(out.end(), bitmap.begin(), bitmap.end());
  return out;
}

std::optional<Bytes> expand_payload(std::span<const std::byte> payload, size_t expanded, wire::DType t) {
  Bytes out(expanded);
  const auto blocks = blocks_of(out, t);
  const size_t bitmap_bytes = (blocks.size() + 7) / 8;
  if (blocks.empty() || payload.size() < bitmap_bytes) return std::nullopt;
  const auto bitmap = payload.last(bitmap_bytes);
  payload = payload.first(payload.size() - bitmap_bytes);
  auto to = out.begin();
  for (size_t i = 0; i < 8 * bitmap_bytes; ++i) {
    const size_t size = i < blocks.size() ? blocks[i].size() : 0;
    if ((std::to_integer<unsigned>(bitmap[i / 8]) >> i % 8 & 1) != 0) {
      if (size == 0 || payload.size() < size) return std::nullopt;
      std::copy_n(payload.begin(), size, to);
      payload = payload.subspan(size);
    }
    to += static_cast<long>(size);
  }
  if (!payload.empty()) return std::nullopt;
  return out;
}

bool has_valid_elements(std::span<const std::byte> payload, wire::DType t) {
  if (t != wire::DType::kInt8Block) return true;
  for (; !payload.empty(); payload = payload.subspan(kBlockBytes)) {
    if (!is_valid_scale(float_at(payload.data())) || !is_valid_scale(float_at(payload.data() + 4)))
      return false;
    if (std::ranges::count(payload.subspan(kScaleBytes, kBlockBytes - kScaleBytes), std::byte{0x80}) > 0)
      return false;
  }
  return true;
}

std::vector<float> values_of_blocks(std::span<const std::byte> blocks, wire::DType t) {
  std::vector<float> values;
  for (; !blocks.empty(); blocks = blocks.subspan(kBlockBytes)) {
    for (size_t i = 0; i < kBlockBytes - kScaleBytes; ++i) {
      const double value = value_in_block(blocks.data(), i, t);
      // The conversion of a double beyond the range of f32 is undefined.
      const bool overflows = std::fabs(value) > std::numeric_limits<float>::max();
      values.push_back(overflows ? std::copysign(HUGE_VALF, value < 0 ? -1.F : 1.F)
                                 : static_cast<float>(value));
    }
  }
  return values;
}

}  // namespace sluice::fuzz
