#include "bench/e2e/workload/wire_pattern.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "wire/payload/block_codec.h"

namespace sluice::bench {
namespace {

using pipeline::WireCast;

constexpr uint16_t kMismatch = 0x7fff;  // a NaN of bf16 and of f16, which no pattern contains

wire::DType pattern_dtype(wire::DType dtype, WireCast cast) noexcept {
  switch (cast) {
    case WireCast::kMxfp8:
    case WireCast::kInt8Block:
    case WireCast::kBf16: return wire::DType::kBf16;
    case WireCast::kScaledF16: return wire::DType::kF16;
    case WireCast::kNone: break;
  }
  return dtype;
}

float widen(uint16_t x, WireCast cast) noexcept {
  return cast == WireCast::kScaledF16 ? pipeline::from_f16(x) : pipeline::from_bf16(x);
}

uint16_t narrow(float x, WireCast cast) noexcept {
  return cast == WireCast::kBf16 ? pipeline::to_bf16(x) : pipeline::to_f16(x);
}

}  // namespace

WireCast cast_of(WireCast wire, wire::DType dtype, wire::Op op) noexcept {
  const bool is_additive = op == wire::Op::kSum || op == wire::Op::kAvg;
  return dtype == wire::DType::kF32 && is_additive ? wire : WireCast::kNone;
}

WirePattern::WirePattern(wire::DType dtype, wire::Op op, WireCast cast, uint32_t ranks, uint64_t seed,
                         double zeros) noexcept
    : dtype_(dtype),
      op_(op),
      cast_(cast),
      ranks_(ranks),
      seed_(seed),
      zeros_(zeros),
      pattern_(pattern_dtype(dtype, cast), op, ranks, seed) {}

void WirePattern::fill(uint32_t rank, uint64_t count, std::byte* out) const {
  pattern_.fill(rank, count, out);
  widen_in_place(count, out);
  clear_zeros(count, out);
}

// From the end, so that no element is overwritten before it is read.
void WirePattern::widen_in_place(uint64_t count, std::byte* data) const noexcept {
  if (cast_ == WireCast::kNone) return;
  for (uint64_t i = count; i-- > 0;) {
    uint16_t x = 0;
    std::memcpy(&x, data + i * sizeof x, sizeof x);
    const float wide = widen(x, cast_);
    std::memcpy(data + i * sizeof wide, &wide, sizeof wide);
  }
}

// Blocks of 64 elements, chosen at random and equal on all ranks.
bool WirePattern::is_zero(uint64_t element) const noexcept {
  constexpr uint32_t kAll = 0xffffffff;
  return zeros_ > 0 && wire::random_bits(seed_, element / 64) <= zeros_ * kAll;
}

void WirePattern::clear_zeros(uint64_t count, std::byte* data) const noexcept {
  const size_t size = wire::size_of(dtype_);
  for (uint64_t i = 0; i < count; i += 64) {
    if (is_zero(i)) std::memset(data + i * size, 0, std::min<uint64_t>(64, count - i) * size);
  }
}

// Folds the blocks as a reducer does.
uint64_t WirePattern::count_wrong_in_blocks(const std::byte* data, uint64_t count) const {
  using Values = std::array<float, wire::kBlockValues>;
  const wire::DType type = cast_ == WireCast::kMxfp8 ? wire::DType::kMxfp8 : wire::DType::kInt8Block;
  const size_t period = std::min<uint64_t>(count, kPatternPeriod);
  std::vector<std::vector<float>> contributions(ranks_, std::vector<float>(period));
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    auto* const out = reinterpret_cast<std::byte*>(contributions[rank].data());
    pattern_.fill(rank, period, out);
    widen_in_place(period, out);
  }
  std::array<std::byte, wire::kBlockBytes> block;
  Values decoded;
  uint64_t wrong = 0;
  for (uint64_t at = 0; at < count; at += wire::kBlockValues) {
    const size_t used = std::min<uint64_t>(count - at, wire::kBlockValues);
    // Folds each group of ranks, then the groups: protocol.md section 7.
    Values sum;
    for (uint32_t rank = 0, group = 0; rank < ranks_; group = rank) {
      Values group_sum;
      for (; rank < ranks_ && rank < group + 8; ++rank) {
        Values values;
        for (size_t i = 0; i < used; ++i)
          values[i] = is_zero(at + i) ? 0.0F : contributions[rank][(at + i) % period];
        wire::encode_blocks(type, values.data(), used, block.data());
        wire::decode_blocks(type, block.data(), used, decoded.data());
        for (size_t i = 0; i < used; ++i)
          group_sum[i] = rank == group ? decoded[i] : group_sum[i] + decoded[i];
      }
      for (size_t i = 0; i < used; ++i) sum[i] = group == 0 ? group_sum[i] : sum[i] + group_sum[i];
    }
    if (op_ == wire::Op::kAvg) {
      for (size_t i = 0; i < used; ++i) sum[i] /= static_cast<float>(ranks_);
    }
    wire::encode_blocks(type, sum.data(), used, block.data());
    wire::decode_blocks(type, block.data(), used, decoded.data());
    for (size_t i = 0; i < used; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, data + (at + i) * sizeof bits, sizeof bits);
      wrong += bits != bits_of(decoded[i]) ? 1 : 0;
    }
  }
  return wrong;
}

uint64_t WirePattern::count_wrong(std::byte* data, uint64_t count) const {
  if (is_block(cast_)) return count_wrong_in_blocks(data, count);
  if (zeros_ > 0) {
    std::vector<std::byte> expected(bytes_of(count));
    pattern_.fill_result(count, expected.data());
    widen_in_place(count, expected.data());
    clear_zeros(count, expected.data());
    const size_t size = wire::size_of(dtype_);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; ++i)
      wrong += std::memcmp(data + i * size, expected.data() + i * size, size) != 0 ? 1 : 0;
    return wrong;
  }
  if (cast_ != WireCast::kNone) {
    for (uint64_t i = 0; i < count; ++i) {
      float wide = 0;
      std::memcpy(&wide, data + i * sizeof wide, sizeof wide);
      const uint16_t x = narrow(wide, cast_);
      // A value that the wire type cannot represent exactly is wrong, even if it rounds to the expected
      // value.
      const bool exact = bits_of(widen(x, cast_)) == bits_of(wide);
      const uint16_t checked = exact ? x : kMismatch;
      std::memcpy(data + i * sizeof checked, &checked, sizeof checked);
    }
  }
  return pattern_.count_wrong(data, count);
}

}  // namespace sluice::bench
