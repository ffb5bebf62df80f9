#include "bench/gpu/wire_pattern.h"

#include <cstring>

namespace sluice::bench {
namespace {

using pipeline::WireCast;

constexpr uint16_t kMismatch = 0x7fff;  // a NaN of bf16 and of f16, which no pattern contains

wire::DType pattern_dtype(wire::DType dtype, WireCast cast) noexcept {
  switch (cast) {
    case WireCast::kBf16: return wire::DType::kBf16;
    case WireCast::kScaledF16: return wire::DType::kF16;
    case WireCast::kNone: break;
  }
  return dtype;
}

float widen(uint16_t x, WireCast cast) noexcept {
  return cast == WireCast::kBf16 ? pipeline::from_bf16(x) : pipeline::from_f16(x);
}

uint16_t narrow(float x, WireCast cast) noexcept {
  return cast == WireCast::kBf16 ? pipeline::to_bf16(x) : pipeline::to_f16(x);
}

}  // namespace

WirePattern::WirePattern(wire::DType dtype, wire::Op op, WireCast cast, uint32_t ranks,
                         uint64_t seed) noexcept
    : dtype_(dtype), cast_(cast), pattern_(pattern_dtype(dtype, cast), op, ranks, seed) {}

void WirePattern::fill(uint32_t rank, uint64_t count, std::byte* out) const {
  pattern_.fill(rank, count, out);
  if (cast_ == WireCast::kNone) return;
  // Widens in place from the end, so that no element is overwritten before it is read.
  for (uint64_t i = count; i-- > 0;) {
    uint16_t x = 0;
    std::memcpy(&x, out + i * sizeof x, sizeof x);
    const float wide = widen(x, cast_);
    std::memcpy(out + i * sizeof wide, &wide, sizeof wide);
  }
}

uint64_t WirePattern::count_wrong(std::byte* data, uint64_t count) const {
  if (cast_ != WireCast::kNone) {
    for (uint64_t i = 0; i < count; ++i) {
      float wide = 0;
      std::memcpy(&wide, data + i * sizeof wide, sizeof wide);
      const uint16_t x = narrow(wide, cast_);
      // A value that the wire type cannot represent exactly is wrong, even if it rounds to the expected
      // value.
      const bool exact = pipeline::bits_of(widen(x, cast_)) == pipeline::bits_of(wide);
      const uint16_t checked = exact ? x : kMismatch;
      std::memcpy(data + i * sizeof checked, &checked, sizeof checked);
    }
  }
  return pattern_.count_wrong(data, count);
}

}  // namespace sluice::bench
