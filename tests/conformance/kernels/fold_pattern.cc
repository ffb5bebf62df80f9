#include "tests/conformance/kernels/fold_pattern.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string_view>

#include "reducer/kernels/scalar_reference.h"
#include "wire/payload/block_codec.h"

namespace sluice::kernels::test {
namespace {

using wire::DType;
using wire::Op;
using wire::SumOrder;

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

// Scales of a block: half of them of similar size, else special or arbitrary.
void random_scales(DType t, std::byte* block, std::mt19937_64& random) {
  constexpr uint8_t kSpecialCodes[] = {0, 1, 7, 8, 127, 246, 247, 248, 254, 255};
  constexpr uint32_t kSpecialScales[] = {0,          0x7fc00000, 0x00800000, 0x7f7fff00, 0x7c000000,
                                         0x7bffff00, 0x3f800000, 0x80000000, 0x00000100, 0x7f800000};
  const size_t size = t == DType::kMxfp8 ? sizeof(uint8_t) : sizeof(uint32_t);
  for (size_t i = 0; i < wire::kBlockScaleBytes; i += size) {
    const uint64_t bits = random();
    const size_t special = (bits >> 32) % std::size(kSpecialCodes);
    const auto kind = bits >> 60;
    auto scale = static_cast<uint32_t>(bits);
    if (t == DType::kMxfp8) {
      if (kind < 8) scale = 120 + scale % 8;
      if (kind >= 8 && kind < 11) scale = kSpecialCodes[special];
    } else {
      if (kind < 8) scale = (0x3f800000 | (scale & 0x01ffffff)) & 0xffffff00;
      if (kind >= 8 && kind < 11) scale = kSpecialScales[special];
      if (kind >= 11 && kind < 15) scale &= 0x7fffff00;
    }
    std::memcpy(block + i, &scale, size);
  }
}

// Half of the blocks have no NaN codes in mxfp8, because vector code may handle such blocks apart.
std::vector<std::byte> random_blocks(DType t, size_t count, std::mt19937_64& random) {
  std::vector<std::byte> blocks(count * wire::kBlockBytes);
  for (size_t at = 0; at < blocks.size(); at += wire::kBlockBytes) {
    random_scales(t, &blocks[at], random);
    const bool has_nan = random() % 2 == 0;
    for (size_t i = at + wire::kBlockScaleBytes; i < at + wire::kBlockBytes; ++i) {
      blocks[i] = static_cast<std::byte>(random() >> 8);
      if (!has_nan && (blocks[i] & std::byte{0x7f}) == std::byte{0x7f}) blocks[i] = std::byte{0x80};
    }
  }
  return blocks;
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

std::vector<Op> ops_of(DType t) {
  std::vector<Op> ops = all_ops();
  std::erase_if(ops, [t](Op op) { return !wire::is_supported(t, op); });
  return ops;
}

DType input_of(DType t, Stage stage) {
  return stage == Stage::kFinish ? wire::accumulator_of(t) : t;
}
DType output_of(DType t, Stage stage) {
  return stage == Stage::kPartial ? wire::accumulator_of(t) : t;
}

size_t input_size(DType t, Stage stage) {
  return stage == Stage::kFinish ? wire::accumulated_size_of(t) : wire::size_of(t);
}
size_t output_size(DType t, Stage stage) {
  return stage == Stage::kPartial ? wire::accumulated_size_of(t) : wire::size_of(t);
}

std::string describe(DType t, Op op, Stage stage, const char* target, SumOrder order) {
  static constexpr const char* kNames[] = {"whole", "partial", "finish"};
  std::string text(wire::to_string(t));
  text.append(" ").append(wire::to_string(op)).append(" ").append(kNames[static_cast<size_t>(stage)]);
  return text.append(" on ").append(target).append(order == SumOrder::kGroups ? ", in groups" : "");
}

std::vector<std::byte> random_elements(DType t, size_t count, std::mt19937_64& random) {
  const FloatFormat format = format_of(t);
  std::vector<uint64_t> patterns(count);
  for (uint64_t& p : patterns) p = format.bits != 0 ? random_float(format, random) : random();
  return elements(t, patterns);
}

std::vector<std::byte> random_input(DType t, Stage stage, size_t count, std::mt19937_64& random) {
  const DType type = input_of(t, stage);
  if (wire::is_block(type)) return random_blocks(type, count, random);
  return random_elements(type, count * input_size(t, stage) / wire::size_of(type), random);
}

std::string first_difference(DType t, Stage stage, std::span<const std::byte> result,
                             std::span<const std::byte> expected) {
  const bool blocks = wire::is_block(output_of(t, stage));
  const DType unit = blocks ? DType::kU8 : output_of(t, stage);
  const auto at = static_cast<size_t>(
      std::mismatch(result.begin(), result.end(), expected.begin(), expected.end()).first - result.begin());
  if (at == result.size()) return "no difference";
  const size_t i = at / wire::size_of(unit);
  std::ostringstream text;
  text << (blocks ? "byte " : "element ") << i << std::hex << " is 0x" << pattern_at(result, unit, i)
       << ", reference 0x" << pattern_at(expected, unit, i);
  return text.str();
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
                                const std::vector<std::vector<std::byte>>& sources, uint32_t divisor,
                                SumOrder order) {
  const size_t count = sources.front().size() / input_size(t, stage);
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  std::vector<std::byte> result(count * output_size(t, stage));
  if (target == nullptr) {
    reference_fold(t, op, stage, order, pointers, count, divisor, result.data());
  } else {
    target->find(t, op, stage, order)(pointers, count, divisor, result.data());
  }
  return result;
}

}  // namespace sluice::kernels::test
