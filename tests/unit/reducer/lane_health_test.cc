// Gradient health on a lane: which rank a result names, and that clean gradients raise no finding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "core/instrumented.h"
#include "tests/support/lane_test_bed.h"
#include "wire/extension.h"
#include "wire/payload/block_codec.h"

namespace sluice::test {
namespace {

using wire::FindingKind;
using Values = std::vector<std::vector<float>>;  // by rank

constexpr uint32_t kHealthValues = 1024;
constexpr float kHealthNan = std::numeric_limits<float>::quiet_NaN();

LaneTestBed make_bed(uint32_t ranks, bool health = true) {
  return LaneTestBed(ranks, 4, 4096, false, health);
}

Values gaussian(uint32_t ranks, std::mt19937_64& random, float scale = 1e-2F) {
  std::normal_distribution<float> normal(0, scale);
  Values values(ranks, std::vector<float>(kHealthValues));
  for (auto& of_rank : values) {
    for (float& v : of_rank) v = normal(random);
  }
  return values;
}

// Reduces one chunk and returns the finding of its result, which must be equal at all ranks.
std::optional<wire::Finding> reduce(LaneTestBed& bed, const Values& values, uint64_t sequence = 0,
                                    wire::Op op = wire::Op::kSum) {
  for (uint32_t r = 0; r < values.size(); ++r) (void)bed.contribute(r, sequence, values[r], op);
  bed.settle();
  std::optional<wire::Finding> first;
  for (uint32_t r = 0; r < values.size(); ++r) {
    auto& arrived = bed.ranks[r]->arrived;
    EXPECT_TRUE(!arrived.empty() && arrived.back().header.sequence == sequence) << "rank " << r;
    if (arrived.empty()) continue;
    arrived.erase(arrived.begin(), arrived.end() - 1);
    EXPECT_TRUE(wire::check_extensions(arrived.back().extensions).ok());
    EXPECT_TRUE(wire::find_result_info(arrived.back().extensions));
    const auto finding = wire::find_finding(arrived.back().extensions);
    if (r == 0) first = finding;
    EXPECT_EQ(finding, first);
  }
  return first;
}

float ratio_of(const wire::Finding& finding) {
  return std::bit_cast<float>(finding.value);
}

TEST(LaneHealth, NamesTheRankWithNonFiniteValues) {
  std::mt19937_64 random(1);
  for (const uint32_t n : {1U, 2U, 3U, 8U, 9U, 20U}) {
    LaneTestBed bed = make_bed(n);
    bed.commit_all();
    Values values = gaussian(n, random);
    values[n - 1][5] = kHealthNan;
    values[n - 1][kHealthValues - 1] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(
        reduce(bed, values),
        (wire::Finding{.kind = FindingKind::kNonFinite, .rank = static_cast<uint16_t>(n - 1), .value = 2}));
    EXPECT_EQ(reduce(bed, gaussian(n, random), 1), std::nullopt) << "the next chunk in another slot";
    for (uint64_t s = 2; s < 6; ++s) EXPECT_EQ(reduce(bed, gaussian(n, random), s), std::nullopt) << s;
    EXPECT_EQ(bed.session->health()->health_of(n - 1).non_finite.get(), 2U);
    EXPECT_EQ(reducer::of_kind(bed.lane->counters().findings, FindingKind::kNonFinite).get(), 1U);
  }
}

TEST(LaneHealth, NamesTheLowestRankOfTheMostSevereKind) {
  std::mt19937_64 random(2);
  LaneTestBed bed = make_bed(5);
  bed.commit_all();
  Values values = gaussian(5, random);
  std::ranges::fill(values[0], 0.F);
  values[1][7] = 1e6F;
  values[2][7] = kHealthNan;
  values[4][7] = kHealthNan;
  EXPECT_EQ(reduce(bed, values), (wire::Finding{.kind = FindingKind::kNonFinite, .rank = 2, .value = 1}));
  values[2][7] = values[4][7] = 0;
  const auto outlier = reduce(bed, values, 1);
  ASSERT_TRUE(outlier);
  EXPECT_EQ(outlier->kind, FindingKind::kOutlier);
  EXPECT_EQ(outlier->rank, 1);
  values[1][7] = 0;
  EXPECT_EQ(reduce(bed, values, 2), (wire::Finding{.kind = FindingKind::kZeros, .rank = 0}));
}

TEST(LaneHealth, ReportsTheRatioOfAnOutlier) {
  for (const uint32_t n : {3U, 4U, 9U}) {
    LaneTestBed bed = make_bed(n);
    bed.commit_all();
    Values values(n, std::vector<float>(kHealthValues, 0.5F));
    values[1][1000] = -2000;
    auto finding = reduce(bed, values);
    ASSERT_TRUE(finding);
    EXPECT_EQ(finding->kind, FindingKind::kOutlier);
    EXPECT_EQ(finding->rank, 1);
    EXPECT_EQ(ratio_of(*finding), 4000.F);
    values[1][1000] = 500;  // exactly a thousand times the median
    EXPECT_EQ(reduce(bed, values, 1), std::nullopt);
  }
}

// Two ranks have no majority.
TEST(LaneHealth, ComparesTwoRanksWithALargerFactor) {
  LaneTestBed bed = make_bed(2);
  bed.commit_all();
  Values values(2, std::vector<float>(kHealthValues, 0.5F));
  values[0][0] = 4e5F;
  EXPECT_EQ(reduce(bed, values), std::nullopt);
  values[0][0] = 6e5F;
  const auto finding = reduce(bed, values, 1);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, FindingKind::kOutlier);
  EXPECT_EQ(finding->rank, 0);
  std::ranges::fill(values[1], 0.F);
  EXPECT_EQ(reduce(bed, values, 2), (wire::Finding{.kind = FindingKind::kZeros, .rank = 1}));
}

TEST(LaneHealth, ZerosOfMostRanksAreOrdinary) {
  LaneTestBed bed = make_bed(4);
  bed.commit_all();
  Values values(4, std::vector<float>(kHealthValues));
  EXPECT_EQ(reduce(bed, values), std::nullopt) << "all";
  values[0][3] = 1;
  EXPECT_EQ(reduce(bed, values, 1), std::nullopt) << "all but one";
  values[1][3] = 1;
  EXPECT_EQ(reduce(bed, values, 2), std::nullopt) << "half";
  values[2][3] = 1;
  EXPECT_EQ(reduce(bed, values, 3), (wire::Finding{.kind = FindingKind::kZeros, .rank = 3}));
}

// Counters and losses may differ by any factor, and the largest value of a rank is no error.
TEST(LaneHealth, DoesNotCompareShortChunksAndOtherOperators) {
  LaneTestBed bed = make_bed(3);
  bed.commit_all();
  Values values(3, std::vector<float>(255, 1.F));
  values[0][0] = 1e9F;
  std::ranges::fill(values[1], 0.F);
  EXPECT_EQ(reduce(bed, values), std::nullopt);
  values[2][0] = kHealthNan;
  EXPECT_EQ(reduce(bed, values, 1), (wire::Finding{.kind = FindingKind::kNonFinite, .rank = 2, .value = 1}));
  values.assign(3, std::vector<float>(kHealthValues, 1.F));
  values[0][0] = 1e9F;
  EXPECT_EQ(reduce(bed, values, 2, wire::Op::kMax), std::nullopt);
}

TEST(LaneHealth, IsSilentWhenItIsOff) {
  std::mt19937_64 random(3);
  LaneTestBed bed = make_bed(3, false);
  bed.commit_all();
  Values values = gaussian(3, random);
  values[1][1] = kHealthNan;
  EXPECT_EQ(reduce(bed, values), std::nullopt);
  EXPECT_EQ(bed.session->health(), nullptr);
  EXPECT_EQ(bed.results(0).back().extensions.size(), wire::kSmallExtensionBytes);
}

TEST(LaneHealth, LooksIntoBlocksAndIntegers) {
  LaneTestBed bed = make_bed(3);
  bed.commit_all();
  uint64_t sequence = 0;
  const auto send = [&](uint32_t rank, wire::DType type, std::vector<std::byte> payload, size_t count) {
    ASSERT_TRUE(bed.ranks[rank]->send(bed.header(sequence, count, type), std::move(payload)).ok());
  };
  for (const wire::DType type : {wire::DType::kMxfp8, wire::DType::kInt8Block}) {
    for (uint32_t r = 0; r < 3; ++r) {
      std::vector<float> values(wire::kBlockValues, 0.25F);
      if (r == 1) values[17] = 1e5F;
      std::vector<std::byte> blocks(wire::kBlockBytes);
      wire::encode_blocks(type, values.data(), values.size(), blocks.data());
      send(r, type, blocks, 1);
    }
    bed.settle();
    const auto finding = wire::find_finding(bed.results(2).back().extensions);
    ASSERT_TRUE(finding) << wire::to_string(type);
    EXPECT_EQ(finding->kind, FindingKind::kOutlier);
    EXPECT_EQ(finding->rank, 1);
    ++sequence;
  }
  for (uint32_t r = 0; r < 3; ++r)
    send(r, wire::DType::kI32, std::vector<std::byte>(4096, std::byte(r == 2 ? 0 : 1)), 1024);
  bed.settle();
  EXPECT_EQ(wire::find_finding(bed.results(0).back().extensions),
            (wire::Finding{.kind = FindingKind::kZeros, .rank = 2}));
}

// A sparse result has all three extensions.
TEST(LaneHealth, FindingsTravelWithSparseResults) {
  LaneTestBed bed = make_bed(3);
  bed.commit_all();
  for (uint32_t r = 0; r < 3; ++r) {
    std::vector<float> values(kHealthValues);
    values[3] = r == 1 ? kHealthNan : 1;
    wire::FrameHeader h = bed.header(0, kHealthValues);
    h.flags |= wire::kFlagAcceptsSparse;
    ASSERT_TRUE(bed.ranks[r]->send(h, LaneTestBed::bytes(values)).ok());
  }
  bed.settle();
  const auto result = bed.results(0).back();
  EXPECT_EQ(result.header.encoding, wire::Encoding::kSparse);
  ASSERT_TRUE(wire::check_extensions(result.extensions).ok());
  EXPECT_EQ(wire::find_expanded(result.extensions)->bytes, kHealthValues * sizeof(float));
  EXPECT_EQ(wire::find_finding(result.extensions)->rank, 1);
}

// Faults of real machines, one at a random place of a random rank. None may be missed, and no clean chunk
// reported.
TEST(LaneHealth, FindsPlantedFaultsAndNothingElse) {
  const int trials = SLUICE_INSTRUMENTED ? 20 : 1000;
  std::mt19937_64 random(4);
  const auto flip_exponent = [](float v) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(v == 0 ? 0.5F : v) ^ 0x40000000U);
  };
  const std::vector<std::function<void(std::vector<float>&, size_t)>> faults = {
      [](auto& v, size_t i) { v[i] = kHealthNan; },
      [](auto& v, size_t i) { v[i] = std::numeric_limits<float>::infinity(); },
      [](auto& v, size_t i) { v[i] = 1e4F * *std::ranges::max_element(v); },
      [](auto& v, size_t) { std::ranges::fill(v, 0.F); },
      [&](auto& v, size_t i) { v[i] = flip_exponent(v[i]); },
  };
  const FindingKind kinds[] = {FindingKind::kNonFinite, FindingKind::kNonFinite, FindingKind::kOutlier,
                               FindingKind::kZeros, FindingKind::kOutlier};
  const uint32_t n = 6;
  LaneTestBed bed = make_bed(n);
  bed.commit_all();
  for (int trial = 0; trial < trials; ++trial) {
    const auto sequence = static_cast<uint64_t>(2 * trial);
    const float scale = std::pow(10.F, std::uniform_real_distribution<float>(-6, 0)(random));
    Values values = gaussian(n, random, scale);
    ASSERT_EQ(reduce(bed, values, sequence), std::nullopt) << "clean trial " << trial;
    const auto rank = static_cast<uint32_t>(random() % n);
    const size_t fault = random() % faults.size();
    const size_t at = random() % kHealthValues;
    // Of values of 2 and more the flip clears the bit: the value becomes tiny, which no comparison can see.
    if (fault == 4) values[rank][at] = std::min(std::fabs(values[rank][at]), 1.5F);
    faults[fault](values[rank], at);
    const auto finding = reduce(bed, values, sequence + 1);
    ASSERT_TRUE(finding) << "trial " << trial << " fault " << fault;
    ASSERT_EQ(finding->rank, rank) << "trial " << trial << " fault " << fault;
    if (fault == 4 && !std::isfinite(values[rank][at])) continue;
    ASSERT_EQ(finding->kind, kinds[fault]) << "trial " << trial << " fault " << fault;
  }
}

}  // namespace
}  // namespace sluice::test
