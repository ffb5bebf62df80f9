#include "reducer/kernels/scalar_reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "wire/payload/block_codec.h"

namespace sluice::kernels {
namespace {

using wire::DType;
using wire::Op;
using wire::SumOrder;

template <class T>
T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class T>
void write(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

float canonical(float v) {
  return std::isnan(v) ? std::bit_cast<float>(uint32_t{0x7fc00000}) : v;
}
double canonical(double v) {
  return std::isnan(v) ? std::bit_cast<double>(uint64_t{0x7ff8000000000000}) : v;
}
template <class T>
requires std::is_integral_v<T> T canonical(T v) {
  return v;
}

// An element whose accumulation type is its own type.
template <class T>
struct Plain {
  using Accumulator = T;
  static constexpr size_t kBytes = sizeof(T);
  static T load(const std::byte* p) { return read<T>(p); }
  static void store(std::byte* p, T v) { write<T>(p, canonical(v)); }
};

// A float of 8 or 16 bits that accumulates in f32.
template <class Pattern, const FloatFormat& kFormat>
struct Small {
  using Accumulator = float;
  static constexpr size_t kBytes = sizeof(Pattern);
  static float load(const std::byte* p) { return reference_widen(kFormat, read<Pattern>(p)); }
  static void store(std::byte* p, float v) {
    write<Pattern>(p, static_cast<Pattern>(reference_round(kFormat, v)));
  }
};

// Computes in u64, so that no signed type overflows.
template <class T>
T wrapping(Op op, T a, T b) {
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  return static_cast<T>(op == Op::kProd ? x * y : x + y);
}

// The minimum or the maximum: a NaN never wins, and -0 < +0.
template <class T>
T extreme(bool minimum, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == b) return std::signbit(a) == minimum ? a : b;
  }
  return (a < b) == minimum ? a : b;
}

template <class T>
T combine(Op op, T a, T b) {
  if (op == Op::kMin || op == Op::kMax) return extreme(op == Op::kMin, a, b);
  if constexpr (std::is_floating_point_v<T>) {
    return op == Op::kProd ? a * b : a + b;
  } else {
    return wrapping(op, a, b);
  }
}

template <class T>
T divide(T sum, uint32_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return sum / static_cast<T>(divisor);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(int64_t{sum} / int64_t{divisor});
  } else {
    return static_cast<T>(uint64_t{sum} / uint64_t{divisor});
  }
}

// The result over `sources`, in an order. `value_of` returns the value of a source, `combine` that of two.
template <class ValueOf, class Combine>
auto fold_in_order(SumOrder order, std::span<const std::byte* const> sources, const ValueOf& value_of,
                   const Combine& combine) {
  const size_t last = sources.size() - 1;
  if (last == 0) return value_of(sources[0]);
  // All but the last source, or the largest power of two that leaves at least one.
  const size_t left = order == SumOrder::kGroups ? last : std::bit_floor(last);
  return combine(fold_in_order(order, sources.first(left), value_of, combine),
                 fold_in_order(order, sources.subspan(left), value_of, combine));
}

template <class Element>
void fold(Op op, Stage stage, SumOrder order, std::span<const std::byte* const> sources, size_t count,
          uint32_t divisor, std::byte* destination) {
  using Accumulator = typename Element::Accumulator;
  const auto load = [stage](const std::byte* source, size_t i) {
    return stage == Stage::kFinish ? read<Accumulator>(source + i * sizeof(Accumulator))
                                   : Element::load(source + i * Element::kBytes);
  };
  for (size_t i = 0; i < count; ++i) {
    Accumulator sum = fold_in_order(
        order, sources, [&](const std::byte* source) { return load(source, i); },
        [&](Accumulator a, Accumulator b) { return combine(op, a, b); });
    if (op == Op::kAvg && stage != Stage::kPartial) sum = divide(sum, divisor);
    if (stage == Stage::kPartial) {
      Plain<Accumulator>::store(destination + i * sizeof(Accumulator), sum);
    } else {
      Element::store(destination + i * Element::kBytes, sum);
    }
  }
}

// An element is a block, or the 256 partial sums of a block.
void fold_blocks(DType t, Op op, Stage stage, SumOrder order, std::span<const std::byte* const> sources,
                 size_t count, uint32_t divisor, std::byte* destination) {
  using Values = std::array<float, wire::kBlockValues>;
  const auto load = [t, stage](const std::byte* source, size_t i) {
    Values values;
    if (stage == Stage::kFinish) {
      std::memcpy(values.data(), source + i * sizeof values, sizeof values);
    } else {
      wire::decode_blocks(t, source + i * wire::kBlockBytes, wire::kBlockValues, values.data());
    }
    return values;
  };
  for (size_t i = 0; i < count; ++i) {
    Values sums = fold_in_order(
        order, sources, [&](const std::byte* source) { return load(source, i); },
        [&](Values a, const Values& b) {
          for (size_t k = 0; k < a.size(); ++k) a[k] = combine(op, a[k], b[k]);
          return a;
        });
    if (stage == Stage::kPartial) {
      for (float& sum : sums) sum = canonical(sum);
      std::memcpy(destination + i * sizeof sums, sums.data(), sizeof sums);
      continue;
    }
    if (op == Op::kAvg) {
      for (float& sum : sums) sum = divide(sum, divisor);
    }
    wire::encode_blocks(t, sums.data(), sums.size(), destination + i * wire::kBlockBytes);
  }
}

}  // namespace

float reference_widen(const FloatFormat& format, uint32_t pattern) noexcept {
  const auto magnitude = static_cast<uint32_t>(pattern & format.magnitude_mask());
  const float sign = magnitude == pattern ? 1.0F : -1.0F;
  if (magnitude > format.largest) return std::bit_cast<float>(uint32_t{0x7fc00000});
  if (format.has_infinity && magnitude == format.largest) return sign * HUGE_VALF;
  const uint32_t implicit_one = 1U << format.mantissa_bits;
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint32_t fraction = magnitude & (implicit_one - 1);
  const int unit = 1 - format.bias - format.mantissa_bits;  // exponent of the last place of a subnormal
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), unit);
  return sign * std::ldexp(static_cast<float>(implicit_one + fraction), exponent - 1 + unit);
}

uint32_t reference_round(const FloatFormat& format, float value) noexcept {
  if (std::isnan(value)) return static_cast<uint32_t>(format.nan);
  const uint32_t sign = std::signbit(value) ? 1U << (format.bits - 1) : 0;
  if (std::isinf(value)) return static_cast<uint32_t>(sign | format.overflow);
  if (value == 0) return sign;
  const int lowest = 1 - format.bias;
  const int exponent = std::max(std::ilogb(value), lowest);
  // In units of the last place. Exact: f32 has 24 bits of mantissa and a double 53.
  const double units = std::ldexp(std::fabs(static_cast<double>(value)), format.mantissa_bits - exponent);
  const double below = std::floor(units);
  auto rounded = static_cast<uint64_t>(below);
  const double rest = units - below;
  if (rest > 0.5 || (rest == 0.5 && rounded % 2 == 1)) ++rounded;
  // The implicit one of a normal number and a carry out of the fraction both add to the exponent field.
  const uint64_t magnitude = (static_cast<uint64_t>(exponent - lowest) << format.mantissa_bits) + rounded;
  return static_cast<uint32_t>(sign | std::min(magnitude, format.overflow));
}

void reference_fold(DType t, Op op, Stage stage, SumOrder order, std::span<const std::byte* const> sources,
                    size_t count, uint32_t divisor, std::byte* destination) noexcept {
  const auto run = [&](auto element) {
    fold<decltype(element)>(op, stage, order, sources, count, divisor, destination);
  };
  switch (t) {
    case DType::kI8: return run(Plain<int8_t>{});
    case DType::kU8: return run(Plain<uint8_t>{});
    case DType::kI32: return run(Plain<int32_t>{});
    case DType::kU32: return run(Plain<uint32_t>{});
    case DType::kI64: return run(Plain<int64_t>{});
    case DType::kU64: return run(Plain<uint64_t>{});
    case DType::kF16: return run(Small<uint16_t, kF16Format>{});
    case DType::kF32: return run(Plain<float>{});
    case DType::kF64: return run(Plain<double>{});
    case DType::kBf16: return run(Small<uint16_t, kBf16Format>{});
    case DType::kF8e4m3: return run(Small<uint8_t, kE4m3Format>{});
    case DType::kF8e5m2: return run(Small<uint8_t, kE5m2Format>{});
    case DType::kMxfp8:
    case DType::kInt8Block: return fold_blocks(t, op, stage, order, sources, count, divisor, destination);
  }
}

}  // namespace sluice::kernels
