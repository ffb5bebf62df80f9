#include "bench/e2e/workload/wire_pattern.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace sluice::bench {
namespace {

using pipeline::WireCast;

constexpr uint64_t kCount = 3000;
constexpr uint32_t kRanks = 3;

std::vector<float> contribution_of(const WirePattern& pattern, uint32_t rank) {
  std::vector<float> data(kCount);
  pattern.fill(rank, kCount, reinterpret_cast<std::byte*>(data.data()));
  return data;
}

uint64_t count_wrong(const WirePattern& pattern, std::vector<float> data) {
  return pattern.count_wrong(reinterpret_cast<std::byte*>(data.data()), data.size());
}

std::vector<float> sum_of_ranks(const WirePattern& pattern) {
  std::vector<float> sum(kCount, 0.0F);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> part = contribution_of(pattern, rank);
    for (size_t i = 0; i < kCount; ++i) sum[i] += part[i];
  }
  return sum;
}

class WirePatternTest : public testing::TestWithParam<WireCast> {
 protected:
  const WirePattern pattern_{wire::DType::kF32, wire::Op::kSum, GetParam(), kRanks, 7};
};

TEST_P(WirePatternTest, FloatSumsAreExact) {
  EXPECT_EQ(count_wrong(pattern_, sum_of_ranks(pattern_)), 0U);
}

TEST_P(WirePatternTest, ValuesAreExactInTheWireType) {
  for (const float x : contribution_of(pattern_, 1)) {
    if (GetParam() == WireCast::kBf16) {
      ASSERT_EQ(pipeline::from_bf16(pipeline::to_bf16(x)), x);
    }
    if (GetParam() == WireCast::kScaledF16) {
      ASSERT_EQ(pipeline::from_f16(pipeline::to_f16(x)), x);
    }
  }
}

TEST_P(WirePatternTest, EveryWrongBitIsDetected) {
  const std::vector<float> right = sum_of_ranks(pattern_);
  for (int bit = 0; bit < 32; ++bit) {
    std::vector<float> wrong = right;
    for (const size_t i : {size_t{5}, size_t{kCount - 1}}) {
      uint32_t bits = 0;
      std::memcpy(&bits, &wrong[i], sizeof bits);
      bits ^= uint32_t{1} << bit;
      std::memcpy(&wrong[i], &bits, sizeof bits);
    }
    EXPECT_EQ(count_wrong(pattern_, wrong), 2U) << "bit " << bit;
  }
}

TEST_P(WirePatternTest, MissingRankIsDetected) {
  std::vector<float> short_of_one = sum_of_ranks(pattern_);
  const std::vector<float> part = contribution_of(pattern_, 2);
  uint64_t changed = 0;
  for (size_t i = 0; i < kCount; ++i) {
    short_of_one[i] -= part[i];
    if (part[i] != 0) ++changed;
  }
  EXPECT_GT(changed, kCount / 2);
  EXPECT_EQ(count_wrong(pattern_, short_of_one), changed);
}

INSTANTIATE_TEST_SUITE_P(Forms, WirePatternTest,
                         testing::Values(WireCast::kNone, WireCast::kBf16, WireCast::kScaledF16));

}  // namespace
}  // namespace sluice::bench
