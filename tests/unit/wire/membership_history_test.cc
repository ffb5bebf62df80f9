#include "wire/membership_history.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::wire {
namespace {

TEST(MembershipHistory, TheFirstEligibleReducerIsTheArbiter) {
  MembershipHistory h({30, 10, 20});
  EXPECT_EQ(h.arbiter(), 30u);
  EXPECT_TRUE(h.remove(30));
  EXPECT_FALSE(h.remove(30));
  EXPECT_EQ(h.arbiter(), 10u);
  EXPECT_TRUE(h.remove(10));
  EXPECT_TRUE(h.remove(20));
  EXPECT_EQ(h.arbiter(), std::nullopt);
  EXPECT_TRUE(h.add(7));
  EXPECT_TRUE(h.add(5));
  EXPECT_EQ(h.arbiter(), std::nullopt) << "not confirmed yet";
  EXPECT_TRUE(h.confirm(7));
  EXPECT_EQ(h.arbiter(), 7u);
  EXPECT_TRUE(h.confirm(5));
  EXPECT_FALSE(h.confirm(5));
  EXPECT_FALSE(h.confirm(10)) << "a reducer of the first view needs no confirmation";
  EXPECT_EQ(h.arbiter(), 5u) << "added reducers are ordered by id, not by time";
  EXPECT_EQ(h.ids(), (std::vector<uint64_t>{30, 10, 20, 5, 7}));
  EXPECT_EQ(h.version(), 7u);
}

TEST(MembershipHistory, IgnoresDuplicatesAndKeepsRemovals) {
  MembershipHistory h({1, 2});
  EXPECT_FALSE(h.add(2));
  EXPECT_TRUE(h.remove(9)) << "the removal arrives before the addition";
  EXPECT_TRUE(h.add(9));
  EXPECT_FALSE(h.add(9));
  EXPECT_FALSE(h.is_active(9));
  EXPECT_TRUE(h.is_removed(9));
  EXPECT_TRUE(h.is_active(1));
  EXPECT_FALSE(h.is_active(3));
}

// The order of merges does not matter, and a larger history has a higher version.
TEST(MembershipHistory, MergesAsAUnion) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const auto random_history = [&] {
      MembershipHistory h({1, 2, 3});
      for (auto i = random() % 6; i > 0; --i) {
        const auto change = random() % 3;
        if (change == 0) h.remove(1 + random() % 6);
        if (change == 1) h.add(4 + random() % 3);
        if (change == 2) h.confirm(4 + random() % 3);
      }
      return h;
    };
    const MembershipHistory a = random_history(), b = random_history();
    MembershipHistory ab = a, ba = b;
    EXPECT_EQ(ab.merge(b), !a.covers(b));
    EXPECT_EQ(ba.merge(a), !b.covers(a));
    ASSERT_EQ(ab, ba);
    EXPECT_TRUE(ab.covers(a) && ab.covers(b));
    if (ab != a) {
      EXPECT_GT(ab.version(), a.version());
    }
  }
}

}  // namespace
}  // namespace sluice::wire
