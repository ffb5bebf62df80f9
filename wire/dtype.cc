#include "wire/dtype.h"

#include <utility>

namespace sluice::wire {
namespace {

// to_string() returns the first name of a type.
constexpr std::pair<std::string_view, DType> kDTypeNames[] = {
    {"i8", DType::kI8},           {"u8", DType::kU8},
    {"i32", DType::kI32},         {"u32", DType::kU32},
    {"i64", DType::kI64},         {"u64", DType::kU64},
    {"f16", DType::kF16},         {"f32", DType::kF32},
    {"f64", DType::kF64},         {"bf16", DType::kBf16},
    {"f8e4m3", DType::kF8e4m3},   {"f8e5m2", DType::kF8e5m2},
    {"mxfp8", DType::kMxfp8},     {"int8-block", DType::kInt8Block},
    {"int8", DType::kI8},         {"uint8", DType::kU8},
    {"int32", DType::kI32},       {"uint32", DType::kU32},
    {"int64", DType::kI64},       {"uint64", DType::kU64},
    {"half", DType::kF16},        {"float", DType::kF32},
    {"double", DType::kF64},      {"bfloat16", DType::kBf16},
    {"int", DType::kI32},         {"f8e4m3fn", DType::kF8e4m3},
    {"fp8_e4m3", DType::kF8e4m3}, {"fp8_e5m2", DType::kF8e5m2},
};

constexpr std::pair<std::string_view, Op> kOpNames[] = {
    {"sum", Op::kSum}, {"prod", Op::kProd}, {"min", Op::kMin}, {"max", Op::kMax}, {"avg", Op::kAvg},
};

template <typename Table, typename Value>
std::string_view name_of(const Table& table, Value value) noexcept {
  for (const auto& [name, v] : table) {
    if (v == value) return name;
  }
  return "unknown";
}

}  // namespace

std::string_view to_string(DType t) noexcept {
  return name_of(kDTypeNames, t);
}
std::string_view to_string(Op op) noexcept {
  return name_of(kOpNames, op);
}

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  for (const auto& [n, t] : kDTypeNames) {
    if (n == name) return t;
  }
  return std::nullopt;
}

std::optional<Op> parse_op(std::string_view name) noexcept {
  for (const auto& [n, op] : kOpNames) {
    if (n == name) return op;
  }
  return std::nullopt;
}

}  // namespace sluice::wire
