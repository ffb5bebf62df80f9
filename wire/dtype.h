// Element types and reduction operators of the protocol (protocol.md section 6). The numbers differ from
// NCCL's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::wire {

enum class DType : uint8_t {
  kI8 = 0,
  kU8 = 1,
  kI32 = 2,
  kU32 = 3,
  kI64 = 4,
  kU64 = 5,
  kF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kBf16 = 9,
  kF8e4m3 = 10,
  kF8e5m2 = 11,
  kMxfp8 = 12,      // blocks of 256 values (block_codec.h)
  kInt8Block = 13,  // the same
};
inline constexpr size_t kDTypeCount = 14;
inline constexpr size_t kPlainDTypeCount = 12;  // all but the block types, which come last

enum class Op : uint8_t { kSum = 0, kProd = 1, kMin = 2, kMax = 3, kAvg = 4 };
inline constexpr size_t kOpCount = 5;

[[nodiscard]] constexpr bool is_valid(DType t) noexcept {
  return static_cast<uint8_t>(t) < kDTypeCount;
}
[[nodiscard]] constexpr bool is_valid(Op op) noexcept {
  return static_cast<uint8_t>(op) < kOpCount;
}

// Whether an element of `t` is a block of 256 values, which only sums and averages accept.
[[nodiscard]] constexpr bool is_block(DType t) noexcept {
  return t == DType::kMxfp8 || t == DType::kInt8Block;
}
// Whether reducers apply `op` to elements of `t`.
[[nodiscard]] constexpr bool is_supported(DType t, Op op) noexcept {
  return !is_block(t) || op == Op::kSum || op == Op::kAvg;
}

// Returns the bytes per element: 1, 2, 4 or 8; of a block 264. `t` must be valid.
[[nodiscard]] constexpr size_t size_of(DType t) noexcept {
  switch (t) {
    case DType::kI8:
    case DType::kU8:
    case DType::kF8e4m3:
    case DType::kF8e5m2: return 1;
    case DType::kF16:
    case DType::kBf16: return 2;
    case DType::kI32:
    case DType::kU32:
    case DType::kF32: return 4;
    case DType::kI64:
    case DType::kU64:
    case DType::kF64: return 8;
    case DType::kMxfp8:
    case DType::kInt8Block: return 264;
  }
  return 0;
}

// The type in which values of `t` are accumulated: f32 for 8-bit and 16-bit floats and blocks, otherwise `t`.
[[nodiscard]] constexpr DType accumulator_of(DType t) noexcept {
  switch (t) {
    case DType::kF16:
    case DType::kBf16:
    case DType::kF8e4m3:
    case DType::kF8e5m2:
    case DType::kMxfp8:
    case DType::kInt8Block: return DType::kF32;
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64:
    case DType::kF32:
    case DType::kF64: return t;
  }
  return t;
}

// Returns the bytes that an element takes while it is accumulated.
[[nodiscard]] constexpr size_t accumulated_size_of(DType t) noexcept {
  return (is_block(t) ? 256 : 1) * size_of(accumulator_of(t));
}

// "f32", "bf16", "f8e4m3", ... and "sum", "avg", ...; "unknown" for invalid values.
[[nodiscard]] std::string_view to_string(DType t) noexcept;
[[nodiscard]] std::string_view to_string(Op op) noexcept;

// Parse the names above and those of nccl-tests ("float", "half", "bfloat16", "int8", "double", "fp8_e4m3",
// ...).
[[nodiscard]] std::optional<DType> parse_dtype(std::string_view name) noexcept;
[[nodiscard]] std::optional<Op> parse_op(std::string_view name) noexcept;

}  // namespace sluice::wire
