#include "bench/e2e/link/link_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::bench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

LinkMatrix matrix(std::vector<std::vector<double>> rows) {
  LinkMatrix m{.workers = rows.size(), .reducers = rows.front().size(), .gb_per_second = {}};
  for (const auto& row : rows) m.gb_per_second.insert(m.gb_per_second.end(), row.begin(), row.end());
  return m;
}

// Returns the names of slow links: "w2", "r0" or "w1-r0".
std::vector<std::string> slow_names(const LinkMatrix& m) {
  std::vector<std::string> names;
  for (const SlowLink& slow : slow_links(m, 0.8)) {
    std::string name = slow.worker ? "w" + std::to_string(*slow.worker) : "";
    if (slow.worker && slow.reducer) name += "-";
    if (slow.reducer) name += "r" + std::to_string(*slow.reducer);
    names.push_back(name);
  }
  return names;
}

TEST(LinkMatrix, CoverageRefersToTheSlowestWorker) {
  EXPECT_DOUBLE_EQ(coverage_of({2, 2, 2}, 1), 0.5);
  EXPECT_DOUBLE_EQ(coverage_of({2, 1, 2}, 1), 1);
  EXPECT_DOUBLE_EQ(coverage_of({}, 1), 0);
}

TEST(LinkMatrix, EqualLinksAreNotSlow) {
  EXPECT_THAT(slow_names(matrix({{1, 0.99}, {1.01, 1}})), IsEmpty());
  EXPECT_THAT(slow_names(matrix({{0.5}})), IsEmpty());
}

TEST(LinkMatrix, HostIsSlowWhenAllItsPairsAreSlow) {
  EXPECT_THAT(slow_names(matrix({{1, 1}, {1, 1}, {0.1, 0.11}})), ElementsAre("w2"));
  EXPECT_THAT(slow_names(matrix({{1, 0.1}, {1, 0.1}, {1, 0.1}})), ElementsAre("r1"));
  EXPECT_THAT(slow_names(matrix({{1, 1, 1, 0.1}, {1, 1, 1, 0.1}, {1, 1, 1, 0.1}, {0.1, 0.1, 0.1, 0.1}})),
              ElementsAre("w3", "r3"));
}

TEST(LinkMatrix, SlowOneOfTwoHostsIsFound) {
  EXPECT_THAT(slow_names(matrix({{1}, {0.1}})), ElementsAre("w1"));
  EXPECT_THAT(slow_names(matrix({{0.1, 1}})), ElementsAre("r0"));
  EXPECT_THAT(slow_names(matrix({{0.1, 0.1}, {1, 1}})), ElementsAre("w0"));
  EXPECT_THAT(slow_names(matrix({{0.1, 1}, {0.1, 1}})), ElementsAre("r0"));
}

TEST(LinkMatrix, SingleSlowPairIsReportedAsPair) {
  EXPECT_THAT(slow_names(matrix({{1, 1}, {0.5, 1}, {1, 1}})), ElementsAre("w1-r0"));
}

TEST(LinkMatrix, ReportsTheFastestPairOfASlowHost) {
  const auto slow = slow_links(matrix({{1, 1}, {1, 1}, {0.1, 0.2}}), 0.8);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].gb_per_second, 0.2);
}

TEST(LinkMatrix, LimitIsAShareOfTheMedian) {
  EXPECT_THAT(slow_names(matrix({{1}, {1}, {0.8}})), IsEmpty());
  EXPECT_THAT(slow_names(matrix({{1}, {1}, {0.79}})), ElementsAre("w2"));
}

}  // namespace
}  // namespace sluice::bench
