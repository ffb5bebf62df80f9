// The order of sums of a session (protocol.md section 7): the tree, or that of earlier releases if a rank's
// client or a reducer is of one. A client of an earlier release does not set the feature bit, which
// Identity::order plays; an earlier reducer does not either, which ReducerOptions::withheld_features plays.
#include <gmock/gmock.h>

#include "tests/functional/colocation_test_bed.h"
#include "wire/message_limits.h"

namespace sluice::test {
namespace {

using wire::SumOrder;

class SumOrderTest : public ColocationTestBed {
 protected:
  static constexpr size_t kCount = 100'003;

  SumOrderTest() { mode = engine::ColocationMode::kOff; }

  // Groups of eight in rank order, then the groups in order, as releases before the tree added.
  static std::vector<float> sum_in_groups(uint32_t ranks, size_t count) {
    std::vector<float> all;
    for (uint32_t first = 0; first < ranks; first += 8) {
      std::vector<float> group = values(first, count);
      for (uint32_t r = first + 1; r < std::min(first + 8, ranks); ++r) add(group, values(r, count));
      if (first == 0) {
        all = group;
      } else {
        add(all, group);
      }
    }
    return all;
  }
  static void add(std::vector<float>& to, const std::vector<float>& other) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += other[i];
  }

  void expect_order(uint32_t ranks, SumOrder order, SumOrder requested = SumOrder::kTree) {
    SCOPED_TRACE(ranks);
    ++tag;
    const auto tree = sum_as_tree(ranks, kCount);
    const auto groups = sum_in_groups(ranks, kCount);
    ASSERT_NE(tree, groups) << "the values show no order";
    const auto& expected = order == SumOrder::kTree ? tree : groups;
    const auto errors = run(
        ranks, [&](uint32_t, engine::SessionOptions& o) { o.join.identity.order = requested; },
        [&](uint32_t rank, engine::Session& session) {
          std::vector<float> data = values(rank, kCount);
          sum(session, data);
          expect_same_bits(data, expected);
        });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
};

TEST_F(SumOrderTest, IsATreeOverTheRanks) {
  start_reducers(2);
  for (const uint32_t ranks : {4U, 7U, 11U}) expect_order(ranks, SumOrder::kTree);
}

TEST_F(SumOrderTest, ClientsOfAnEarlierReleaseGetTheirBits) {
  start_reducers(2);
  for (const uint32_t ranks : {4U, 7U, 11U}) expect_order(ranks, SumOrder::kGroups, SumOrder::kGroups);
}

TEST_F(SumOrderTest, AReducerOfAnEarlierReleaseGivesAllOfThemItsOrder) {
  start_reducers(1);
  start_reducers(1, wire::kFeatureTreeOrder);
  for (const uint32_t ranks : {4U, 11U}) expect_order(ranks, SumOrder::kGroups);
}

TEST_F(SumOrderTest, CoLocatedReducersFollowTheSession) {
  mode = engine::ColocationMode::kAlways;
  start_reducers(1);
  expect_order(5, SumOrder::kTree);
  expect_order(5, SumOrder::kGroups, SumOrder::kGroups);
}

TEST_F(SumOrderTest, RanksOfTwoReleasesAreRefusedWithBothNamed) {
  start_reducers(1);
  const auto errors = run(
      2,
      [](uint32_t rank, engine::SessionOptions& o) {
        if (rank == 1) o.join.identity.order = SumOrder::kGroups;
      },
      nullptr);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, testing::HasSubstr("ranks disagree on the order of sums: rank 1 (127.0.0.1:"));
    EXPECT_THAT(error, testing::HasSubstr(") requests that of earlier releases, rank 0 (127.0.0.1:"));
    EXPECT_THAT(error, testing::HasSubstr(") the tree; use one release on all ranks"));
  }
}

// After a loss the rest of a session's reducers keep its order.
TEST_F(SumOrderTest, OutlastsTheLossOfAReducer) {
  start_reducers(2);
  ++tag;
  const auto expected = sum_as_tree(5, kCount);
  const auto errors = run(5, nullptr, [&](uint32_t rank, engine::Session& session) {
    for (int i = 0; i < 20; ++i) {
      std::vector<float> data = values(rank, kCount);
      sum(session, data);
      expect_same_bits(data, expected);
      if (rank == 0 && i == 5) reducers[1].reset();
    }
    EXPECT_GT(session.stats().recovery.view_changes, 0U);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace sluice::test
