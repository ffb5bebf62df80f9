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
};
inline constexpr size_t kDTypeCount = 12;

enum class Op : uint8_t { kSum = 0, kProd = 1, kMin = 2, kMax = 3, kAvg = 4 };
inline constexpr size_t kOpCount = 5;

[[nodiscard]] constexpr bool is_valid(DType t) noexcept {
  return static_cast<uint8_t>(t) < kDTypeCount;
}
[[nodiscard]] constexpr bool is_valid(Op op) noexcept {
  return static_cast<uint8_t>(op) < kOpCount;
}

// Returns the bytes per element: 1, 2, 4 or 8. `t` must be valid.
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
  }
  return 0;
}

// The type in which values of `t` are accumulated: f32 for 8-bit and 16-bit floats, otherwise `t`.
[[nodiscard]] constexpr DType accumulator_of(DType t) noexcept {
  switch (t) {
    case DType::kF16:
    case DType::kBf16:
    case DType::kF8e4m3:
    case DType::kF8e5m2: return DType::kF32;
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

// "f32", "bf16", "f8e4m3", ... and "sum", "avg", ...; "unknown" for invalid values.
[[nodiscard]] std::string_view to_string(DType t) noexcept;
[[nodiscard]] std::string_view to_string(Op op) noexcept;

// Parse the names above and those of nccl-tests ("float", "half", "bfloat16", "int8", "double", "fp8_e4m3",
// ...).
[[nodiscard]] std::optional<DType> parse_dtype(std::string_view name) noexcept;
[[nodiscard]] std::optional<Op> parse_op(std::string_view name) noexcept;

}  // namespace sluice::wire
