// What the findings of chunks say about an operation, and the queue of findings.
#include <gtest/gtest.h>

#include "gpu_client/engine/data_path/finding_queue.h"

namespace sluice::engine {
namespace {

using wire::FindingKind;

wire::Finding chunk(FindingKind kind, uint16_t rank, uint32_t value = 0) {
  return {.kind = kind, .rank = rank, .value = value};
}

TEST(FindingSum, CountsTheValuesOfOneRank) {
  FindingSum sum;
  EXPECT_FALSE(sum.result(3));
  sum.add(chunk(FindingKind::kNonFinite, 4, 3));
  sum.add(chunk(FindingKind::kNonFinite, 2, 5));
  sum.add(chunk(FindingKind::kNonFinite, 2, 1));
  sum.add(chunk(FindingKind::kNonFinite, 3, 100));
  const auto finding = sum.result(9);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, FindingKind::kNonFinite);
  EXPECT_EQ(finding->rank, 2U);
  EXPECT_EQ(finding->count, 6U);
}

TEST(FindingSum, PrefersTheMoreSevereKind) {
  FindingSum sum;
  sum.add(chunk(FindingKind::kOutlier, 1, std::bit_cast<uint32_t>(2e3F)));
  sum.add(chunk(FindingKind::kOutlier, 1, std::bit_cast<uint32_t>(5e3F)));
  EXPECT_EQ(sum.result(3)->ratio, 5e3F);
  sum.add(chunk(FindingKind::kNonFinite, 7, 1));
  sum.add(chunk(FindingKind::kOutlier, 0, std::bit_cast<uint32_t>(9e3F)));
  EXPECT_EQ(sum.result(3)->kind, FindingKind::kNonFinite);
  EXPECT_EQ(sum.result(3)->rank, 7U);
}

TEST(FindingSum, NeedsZerosInAllParts) {
  FindingSum sum;
  sum.add(chunk(FindingKind::kZeros, 5));
  sum.add(chunk(FindingKind::kZeros, 5));
  EXPECT_FALSE(sum.result(3));
  ASSERT_TRUE(sum.result(2));
  EXPECT_EQ(sum.result(2)->kind, FindingKind::kZeros);
  EXPECT_EQ(sum.result(2)->rank, 5U);
  sum.add(chunk(FindingKind::kZeros, 6));
  EXPECT_FALSE(sum.result(3)) << "of two ranks";
}

TEST(FindingQueue, KeepsTheLatest) {
  FindingQueue queue;
  EXPECT_FALSE(queue.pop());
  for (uint64_t i = 1; i <= FindingQueue::kCapacity + 2; ++i) queue.push({.request = i, .finding = {}});
  for (uint64_t i = 3; i <= FindingQueue::kCapacity + 2; ++i) EXPECT_EQ(queue.pop()->request, i);
  EXPECT_FALSE(queue.pop());
}

}  // namespace
}  // namespace sluice::engine
