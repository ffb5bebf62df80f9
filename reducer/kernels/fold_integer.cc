#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reducer/kernels/fold_integer.cc"
#include "reducer/kernels/targets.h"
//
#include <cstring>
#include <type_traits>

#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/combine-inl.h"
#include "reducer/kernels/elements-inl.h"
#include "reducer/kernels/families-inl.h"
#include "reducer/kernels/fold_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

// Divides the wrapped sum, truncating towards zero.
//
// Up to 32 bits, a correctly rounded float quotient (f32 for 8 bits, f64 for 32) truncates to the exact one:
// the next integer is at least 1 / divisor away, more than the rounding error. The compiler vectorizes float
// divisions, but not integer divisions.
template <class T>
void divide(size_t count, uint32_t divisor, std::byte* destination) noexcept {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, destination + i * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) == 1) {
      value = static_cast<T>(static_cast<float>(value) / static_cast<float>(divisor));
    } else if constexpr (sizeof(T) == 4) {
      value = static_cast<T>(static_cast<double>(value) / static_cast<double>(divisor));
    } else if constexpr (std::is_signed_v<T>) {
      value = value / int64_t{divisor};
    } else {
      value = value / uint64_t{divisor};
    }
    std::memcpy(destination + i * sizeof(T), &value, sizeof(T));
  }
}

template <class T>
void fold_average(std::span<const std::byte* const> sources, size_t count, uint32_t divisor,
                  std::byte* destination) noexcept {
  using Kind = Plain<std::make_unsigned_t<T>>;
  fold<Kind, IntegerSum<typename Kind::D>>(sources, count, divisor, destination);
  divide<T>(count, divisor, destination);
}

template <class T>
FoldFunction find_plain_integer(wire::Op op, Stage stage) noexcept {
  using Bits = Plain<std::make_unsigned_t<T>>;
  using Kind = Plain<T>;
  switch (op) {
    case wire::Op::kSum: return fold<Bits, IntegerSum<typename Bits::D>>;
    case wire::Op::kProd: return fold<Bits, IntegerProd<typename Bits::D>>;
    case wire::Op::kMin: return fold<Kind, IntegerMin<typename Kind::D>>;
    case wire::Op::kMax: return fold<Kind, IntegerMax<typename Kind::D>>;
    case wire::Op::kAvg:
      return stage == Stage::kPartial ? fold<Bits, IntegerSum<typename Bits::D>> : fold_average<T>;
  }
  return nullptr;
}

FoldFunction find_integer(wire::DType t, wire::Op op, Stage stage) noexcept {
  switch (t) {
    case wire::DType::kI8: return find_plain_integer<int8_t>(op, stage);
    case wire::DType::kU8: return find_plain_integer<uint8_t>(op, stage);
    case wire::DType::kI32: return find_plain_integer<int32_t>(op, stage);
    case wire::DType::kU32: return find_plain_integer<uint32_t>(op, stage);
    case wire::DType::kI64: return find_plain_integer<int64_t>(op, stage);
    case wire::DType::kU64: return find_plain_integer<uint64_t>(op, stage);
    default: return nullptr;
  }
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
