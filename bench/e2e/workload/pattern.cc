#include "bench/e2e/workload/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/bytes.h"

namespace sluice::bench {
namespace {

using wire::DType;
using wire::Op;

constexpr uint32_t kMostRanksOfHost = 64;  // that share memory; more send their own data

bool is_float(DType t) {
  return wire::accumulator_of(t) == DType::kF32 || t == DType::kF64;
}
bool is_signed_integer(DType t) {
  return t == DType::kI8 || t == DType::kI32 || t == DType::kI64;
}

// Layout of a float type, and bounds of its data below which every integer is exact.
struct FloatRange {
  int mantissa_bits;
  int bias;
  double sum;       // bound of a(rank, i) for sum, and of the values for min and max
  double avg_walk;  // bound of a(rank, i) for avg: 4096 * avg_mean + avg_walk is exact in the accumulator
  double avg_mean;  // bound of the mean for avg; of bf16, of its sum over a host's ranks
};
FloatRange range_of(DType t) {
  switch (t) {
    case DType::kF8e5m2: return {2, 15, 8, 4, 4};
    case DType::kF8e4m3: return {3, 7, 16, 8, 8};
    case DType::kBf16: return {7, 127, 256, 128, 128};
    case DType::kF16: return {10, 15, 2048, 1024, 1024};
    case DType::kF32: return {23, 127, 0x1p24, 0x1p20, 0x1p10};
    default: return {52, 1023, 0x1p53, 0x1p50, 0x1p30};
  }
}

// Returns the bits of a value that is exact in `t` and either normal or 0.
uint64_t encode_float(DType t, double value) {
  if (t == DType::kF64) return std::bit_cast<uint64_t>(value);
  if (t == DType::kF32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (value == 0) return 0;
  const FloatRange range = range_of(t);
  const auto bits = static_cast<unsigned>(8 * wire::size_of(t));
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const auto mantissa = static_cast<uint64_t>(std::ldexp(fraction * 2 - 1, range.mantissa_bits));
  const auto biased = static_cast<uint64_t>(exponent - 1 + range.bias);
  return (uint64_t{value < 0} << (bits - 1)) | (biased << range.mantissa_bits) | mantissa;
}

// Returns the inverse of an odd number modulo 2^64. Newton's iteration starts with 3 correct bits and doubles
// their number.
uint64_t inverse(uint64_t odd) {
  uint64_t x = odd;
  for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
  return x;
}

// Returns an integer in [0, bound].
double up_to(double bound, uint64_t hashed) {
  const auto n = static_cast<uint64_t>(bound) + 1;
  return static_cast<double>((hashed >> 8) % n);
}

int exponent_of(uint64_t hashed) {
  return static_cast<int>(hashed & 3);
}
double sign_of(uint64_t hashed) {
  return (hashed & 4) != 0 ? -1.0 : 1.0;
}

}  // namespace

// Applies the finalizer of splitmix64 to a mix of seed, rank and index.
uint64_t Pattern::hash(uint64_t rank, uint64_t i) const noexcept {
  uint64_t x = seed_ * 0x9e3779b97f4a7c15U + rank * 0xd1342543de82ef95U + i * 0xaf251af3b0f025b5U + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

uint64_t Pattern::integer_contribution(uint32_t rank, uint64_t i) const noexcept {
  switch (op_) {
    case Op::kSum:
    case Op::kAvg: return hash(rank + 1, i) - hash(rank, i);
    case Op::kProd: return (hash(rank + 1, i) | 1) * inverse(hash(rank, i) | 1);
    case Op::kMin:
    case Op::kMax: break;
  }
  // min: the extreme is in the lower half of the range; the other values exceed it by less than half the
  // range. max: complements, which reverse the order.
  const auto bits = static_cast<unsigned>(8 * wire::size_of(dtype_));
  const uint64_t half = uint64_t{1} << (bits - 1);
  const uint64_t lowest = is_signed_integer(dtype_) ? half : 0;
  const uint64_t base = lowest + (hash(0, i) >> 8) % half;
  const bool holds_extreme = hash(1, i) % ranks_ == rank;
  const uint64_t value = holds_extreme ? base : base + 1 + (hash(2 + uint64_t{rank}, i) >> 8) % (half - 1);
  return op_ == Op::kMin ? value : ~value;
}

uint64_t Pattern::integer_result(uint64_t i) const noexcept {
  const auto bits = static_cast<unsigned>(8 * wire::size_of(dtype_));
  switch (op_) {
    case Op::kSum: return hash(ranks_, i) - hash(0, i);
    case Op::kProd: return (hash(ranks_, i) | 1) * inverse(hash(0, i) | 1);
    case Op::kAvg: {
      const uint64_t sum = (hash(ranks_, i) - hash(0, i)) << (64 - bits);
      if (is_signed_integer(dtype_)) {
        return static_cast<uint64_t>((static_cast<int64_t>(sum) >> (64 - bits)) /
                                     static_cast<int64_t>(ranks_));
      }
      return (sum >> (64 - bits)) / ranks_;
    }
    case Op::kMin:
    case Op::kMax: break;
  }
  return integer_contribution(static_cast<uint32_t>(hash(1, i) % ranks_), i);
}

// Returns the bound of a(rank, i). For kAny the sum of every subset of the ranks must be exact.
double Pattern::sum_bound() const noexcept {
  const double exact = range_of(dtype_).sum;
  return order_ == SummationOrder::kByRank ? exact : std::floor(exact / ranks_);
}

// Returns the bound of the mean for avg. Hosts send the sums of their ranks in bf16, all other types in the
// accumulator.
double Pattern::mean_bound() const noexcept {
  const double bound = range_of(dtype_).avg_mean;
  return dtype_ == DType::kBf16 ? std::floor(bound / std::min(ranks_, kMostRanksOfHost)) : bound;
}

double Pattern::float_contribution(uint32_t rank, uint64_t i) const noexcept {
  const FloatRange range = range_of(dtype_);
  switch (op_) {
    case Op::kSum: return up_to(sum_bound(), hash(rank + 1, i)) - up_to(sum_bound(), hash(rank, i));
    case Op::kProd: {
      const uint64_t next = hash(rank + 1, i);
      const uint64_t here = hash(rank, i);
      return std::ldexp(sign_of(next) * sign_of(here), exponent_of(next) - exponent_of(here));
    }
    case Op::kAvg: {
      const double step =
          up_to(range.avg_walk, hash((rank + 1) % ranks_, i)) - up_to(range.avg_walk, hash(rank, i));
      return step + float_result(i);
    }
    case Op::kMin:
    case Op::kMax: break;
  }
  const double base = -up_to(range.sum / 2, hash(0, i));
  const bool holds_extreme = hash(1, i) % ranks_ == rank;
  const double value =
      holds_extreme ? base : base + 1 + up_to(range.sum / 2 - 1, hash(2 + uint64_t{rank}, i));
  return op_ == Op::kMin ? value : 0.0 - value;
}

double Pattern::float_result(uint64_t i) const noexcept {
  switch (op_) {
    case Op::kSum: return up_to(sum_bound(), hash(ranks_, i)) - up_to(sum_bound(), hash(0, i));
    case Op::kProd: {
      const uint64_t last = hash(ranks_, i);
      const uint64_t first = hash(0, i);
      return std::ldexp(sign_of(last) * sign_of(first), exponent_of(last) - exponent_of(first));
    }
    case Op::kAvg: return up_to(2 * mean_bound(), hash(~uint64_t{0}, i)) - mean_bound();
    case Op::kMin:
    case Op::kMax: break;
  }
  return float_contribution(static_cast<uint32_t>(hash(1, i) % ranks_), i);
}

uint64_t Pattern::contribution(uint32_t rank, uint64_t i) const noexcept {
  return is_float(dtype_) ? encode_float(dtype_, float_contribution(rank, i)) : integer_contribution(rank, i);
}

uint64_t Pattern::result(uint64_t i) const noexcept {
  return is_float(dtype_) ? encode_float(dtype_, float_result(i)) : integer_result(i);
}

std::vector<std::byte> Pattern::one_period(size_t count, bool expected, uint32_t rank) const {
  const size_t size = wire::size_of(dtype_);
  const size_t n = std::min(count, kPatternPeriod);
  std::vector<std::byte> period(n * size);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t bits = expected ? result(i) : contribution(rank, i);
    std::byte* at = period.data() + i * size;
    switch (size) {
      case 1: store_le(at, static_cast<uint8_t>(bits)); break;
      case 2: store_le(at, static_cast<uint16_t>(bits)); break;
      case 4: store_le(at, static_cast<uint32_t>(bits)); break;
      default: store_le(at, bits); break;
    }
  }
  return period;
}

void Pattern::fill(uint32_t rank, size_t count, std::byte* out) const {
  repeat(one_period(count, false, rank), count, out);
}

void Pattern::fill_result(size_t count, std::byte* out) const {
  repeat(one_period(count, true, 0), count, out);
}

void Pattern::repeat(const std::vector<std::byte>& period, size_t count, std::byte* out) const {
  const size_t bytes = count * wire::size_of(dtype_);
  for (size_t at = 0; at < bytes; at += period.size()) {
    std::memcpy(out + at, period.data(), std::min(period.size(), bytes - at));
  }
}

uint64_t Pattern::count_wrong(const std::byte* data, size_t count) const {
  const std::vector<std::byte> period = one_period(count, true, 0);
  const size_t size = wire::size_of(dtype_);
  const size_t bytes = count * size;
  uint64_t wrong = 0;
  for (size_t at = 0; at < bytes; at += period.size()) {
    const size_t n = std::min(period.size(), bytes - at);
    if (std::memcmp(data + at, period.data(), n) == 0) continue;
    for (size_t e = 0; e < n; e += size)
      wrong += std::memcmp(data + at + e, period.data() + e, size) != 0 ? 1 : 0;
  }
  return wrong;
}

}  // namespace sluice::bench
