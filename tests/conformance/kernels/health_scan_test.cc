// Scans for gradient health against a reference of one value at a time, for every type, target and division
// of the data into calls.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "reducer/kernels/float_format.h"
#include "reducer/kernels/health/scan.h"
#include "reducer/kernels/scalar_reference.h"
#include "tests/conformance/kernels/fold_pattern.h"
#include "wire/payload/block_codec.h"

namespace sluice::kernels::test {
namespace {

using wire::DType;

bool is_float(DType t) {
  return wire::is_block(t) || t == DType::kF16 || t == DType::kBf16 || t == DType::kF32 || t == DType::kF64 ||
         t == DType::kF8e4m3 || t == DType::kF8e5m2;
}

double value_at(const std::vector<std::byte>& data, DType t, size_t i) {
  const uint64_t pattern = pattern_at(data, t, i);
  const auto narrow = static_cast<uint32_t>(pattern);
  switch (t) {
    case DType::kF64: return std::bit_cast<double>(pattern);
    case DType::kF32: return std::bit_cast<float>(narrow);
    case DType::kF16: return reference_widen(kF16Format, narrow);
    case DType::kBf16: return reference_widen(kBf16Format, narrow);
    case DType::kF8e4m3: return reference_widen(kE4m3Format, narrow);
    case DType::kF8e5m2: return reference_widen(kE5m2Format, narrow);
    default: return pattern != 0 ? 1 : 0;
  }
}

// The values of an element: one, or the 256 of a block.
std::vector<double> values_of(const std::vector<std::byte>& data, DType t, size_t i) {
  if (!wire::is_block(t)) return {value_at(data, t, i)};
  std::vector<float> values(wire::kBlockValues);
  wire::decode_blocks(t, data.data() + i * wire::kBlockBytes, values.size(), values.data());
  return {values.begin(), values.end()};
}

HealthStats reference_scan(const std::vector<std::byte>& data, DType t, size_t count) {
  HealthStats stats;
  for (size_t i = 0; i < count; ++i) {
    const bool sampled =
        is_float(t) && (wire::is_block(t) ? i % kSampledBlocks == 0 : i % kSamplePeriod < kSampleRun);
    for (const double v : values_of(data, t, i)) {
      if (std::isfinite(v)) {
        stats.largest = std::max(stats.largest, std::fabs(v));
        if (sampled) stats.square_sum += v * v;
      } else {
        ++stats.non_finite;
      }
      if (sampled) ++stats.sampled;
      if (sampled && v == 0) ++stats.zeros;
    }
  }
  return stats;
}

void expect_equal(const HealthStats& got, const HealthStats& expected, const std::string& what) {
  EXPECT_EQ(got.non_finite, expected.non_finite) << what;
  EXPECT_EQ(got.largest, expected.largest) << what;
  EXPECT_EQ(got.sampled, expected.sampled) << what;
  EXPECT_EQ(got.zeros, expected.zeros) << what;
  if (std::isfinite(expected.square_sum)) {
    EXPECT_NEAR(got.square_sum, expected.square_sum, 1e-12 * expected.square_sum) << what;
  }
}

TEST(HealthScan, EqualsTheReferenceOnEveryTarget) {
  std::mt19937_64 random(21);
  for (const DType t : all_types()) {
    const size_t most = wire::is_block(t) ? 150 : 5000;
    for (int round = 0; round < (kSlowBuild ? 4 : 24); ++round) {
      const size_t count = round == 0 ? 0 : random() % most;
      const auto data = random_input(t, Stage::kWhole, count, random);
      const HealthStats expected = reference_scan(data, t, count);
      const size_t step = round % 2 == 0 ? count + 1 : 1 + random() % (most / 3);
      for (const ScanTarget& target : scan_targets()) {
        HealthStats got;
        for (size_t first = 0; first < count; first += step) {
          target.find(t)(data.data() + first * wire::size_of(t), first, std::min(step, count - first), got);
        }
        expect_equal(got, expected, std::string(wire::to_string(t)) + " on " + target.name);
      }
    }
  }
}

// Of 8-bit and 16-bit types every pattern, at every distance from the end of the vectors.
TEST(HealthScan, ClassifiesEveryPatternOfSmallTypes) {
  for (const DType t : {DType::kF8e4m3, DType::kF8e5m2, DType::kF16, DType::kBf16}) {
    const uint64_t patterns = uint64_t{1} << (8 * wire::size_of(t));
    for (uint64_t pattern = 0; pattern < patterns; pattern += kSlowBuild ? 7 : 1) {
      std::vector<uint64_t> all(65, 0);
      all[pattern % all.size()] = pattern;
      const auto data = elements(t, all);
      const double v = value_at(data, t, pattern % all.size());
      for (const ScanTarget& target : scan_targets()) {
        HealthStats got;
        target.find(t)(data.data(), 1, all.size(), got);
        ASSERT_EQ(got.non_finite, std::isfinite(v) ? 0 : 1) << wire::to_string(t) << ' ' << pattern;
        ASSERT_EQ(got.largest, std::isfinite(v) ? std::fabs(v) : 0) << wire::to_string(t) << ' ' << pattern;
      }
    }
  }
}

// All targets return the same bits, also of the sum of squares.
TEST(HealthScan, HasTheSameBitsOnEveryTarget) {
  std::mt19937_64 random(22);
  for (const DType t : {DType::kF32, DType::kBf16, DType::kF16, DType::kF8e4m3, DType::kMxfp8}) {
    const size_t count = wire::is_block(t) ? 150 : 9000;
    const auto data = random_input(t, Stage::kWhole, count, random);
    HealthStats first;
    scan_targets().front().find(t)(data.data(), 5, count, first);
    for (const ScanTarget& target : scan_targets()) {
      HealthStats got;
      target.find(t)(data.data(), 5, count, got);
      EXPECT_EQ(std::bit_cast<uint64_t>(got.square_sum), std::bit_cast<uint64_t>(first.square_sum))
          << wire::to_string(t) << " on " << target.name;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::test
