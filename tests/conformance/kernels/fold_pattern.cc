#include "tests/conformance/kernels/fold_pattern.h"

#include <cstring>
#include <string_view>

#include "reducer/kernels/scalar_reference.h"

namespace sluice::kernels::test {
namespace {

using wire::DType;
using wire::Op;

// The format of a float: bits, stored mantissa bits, and stored exponent of 1.0. All zero for an integer.
struct FloatFormat {
  int bits;
  int mantissa;
  int bias;
};

FloatFormat format_of(DType t) {
  switch (t) {
    case DType::kF16: return {16, 10, 15};
    case DType::kBf16: return {16, 7, 127};
    case DType::kF32: return {32, 23, 127};
    case DType::kF64: return {64, 52, 1023};
    case DType::kF8e4m3: return {8, 3, 7};
    case DType::kF8e5m2: return {8, 2, 15};
    default: return {};
  }
}

uint64_t random_float(const FloatFormat& format, std::mt19937_64& random) {
  const uint64_t bits = random();
  const uint64_t sign = uint64_t{1} << (format.bits - 1);
  const uint64_t one = uint64_t{1} << format.mantissa;
  const uint64_t fraction = bits & (one - 1);
  const uint64_t sign_bit = (bits >> 63) != 0 ? sign : 0;
  const uint64_t special_exponent = sign - one;  // all exponent bits: infinities and NaNs
  switch ((bits >> 56) % 12) {
    case 0: return sign_bit;                                // zero
    case 1: return sign_bit | special_exponent;             // infinity (a finite number in e4m3)
    case 2: return sign_bit | special_exponent | fraction;  // usually a NaN
    case 3: return sign_bit | fraction;                     // subnormal
    case 4: return sign_bit | (special_exponent - 1);       // largest
    case 5:
    case 6:
    case 7:
    case 8: {  // near 1, so that sums use every rounding bit
      const auto exponent = static_cast<uint64_t>(format.bias - 3) + (bits >> 40) % 7;
      return sign_bit | (exponent << format.mantissa) | fraction;
    }
    default: return bits & (sign | (sign - 1));
  }
}

}  // namespace

std::vector<DType> all_types() {
  std::vector<DType> types;
  for (uint8_t t = 0; t < wire::kDTypeCount; ++t) types.push_back(static_cast<DType>(t));
  return types;
}

std::vector<Op> all_ops() {
  std::vector<Op> ops;
  for (uint8_t op = 0; op < wire::kOpCount; ++op) ops.push_back(static_cast<Op>(op));
  return ops;
}

DType input_of(DType t, Stage stage) {
  return stage == Stage::kFinish ? wire::accumulator_of(t) : t;
}
DType output_of(DType t, Stage stage) {
  return stage == Stage::kPartial ? wire::accumulator_of(t) : t;
}

std::string describe(DType t, Op op, Stage stage, const char* target) {
  static constexpr const char* kNames[] = {"whole", "partial", "finish"};
  std::string text(wire::to_string(t));
  text.append(" ").append(wire::to_string(op)).append(" ").append(kNames[static_cast<size_t>(stage)]);
  return text.append(" on ").append(target);
}

std::vector<std::byte> random_elements(DType t, size_t count, std::mt19937_64& random) {
  const FloatFormat format = format_of(t);
  std::vector<uint64_t> patterns(count);
  for (uint64_t& p : patterns) p = format.bits != 0 ? random_float(format, random) : random();
  return elements(t, patterns);
}

uint64_t pattern_at(std::span<const std::byte> bytes, DType t, size_t i) {
  uint64_t pattern = 0;
  std::memcpy(&pattern, bytes.data() + i * wire::size_of(t), wire::size_of(t));
  return pattern;
}

std::vector<std::byte> elements(DType t, const std::vector<uint64_t>& patterns) {
  const size_t size = wire::size_of(t);
  std::vector<std::byte> bytes(patterns.size() * size);
  for (size_t i = 0; i < patterns.size(); ++i) std::memcpy(bytes.data() + i * size, &patterns[i], size);
  return bytes;
}

std::vector<std::byte> run_fold(const FoldTarget* target, DType t, Op op, Stage stage,
                                const std::vector<std::vector<std::byte>>& sources, uint32_t divisor) {
  const size_t count = sources.front().size() / wire::size_of(input_of(t, stage));
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  std::vector<std::byte> result(count * wire::size_of(output_of(t, stage)));
  if (target == nullptr) {
    reference_fold(t, op, stage, pointers, count, divisor, result.data());
  } else {
    target->find(t, op, stage)(pointers, count, divisor, result.data());
  }
  return result;
}

}  // namespace sluice::kernels::test
