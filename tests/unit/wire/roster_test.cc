#include "wire/roster.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::wire {
namespace {

TEST(Roster, NamesTheFirstThatLivesAsArbiter) {
  Roster r({30, 10, 20});
  EXPECT_EQ(r.arbiter(), 30u);
  EXPECT_TRUE(r.remove(30));
  EXPECT_FALSE(r.remove(30));
  EXPECT_EQ(r.arbiter(), 10u);
  EXPECT_TRUE(r.remove(10));
  EXPECT_TRUE(r.remove(20));
  EXPECT_EQ(r.arbiter(), std::nullopt);
  EXPECT_TRUE(r.add(7));
  EXPECT_TRUE(r.add(5));
  EXPECT_EQ(r.arbiter(), std::nullopt) << "no rank has joined them yet";
  EXPECT_TRUE(r.seat(7));
  EXPECT_EQ(r.arbiter(), 7u);
  EXPECT_TRUE(r.seat(5));
  EXPECT_FALSE(r.seat(5));
  EXPECT_FALSE(r.seat(10)) << "those of the first view have one";
  EXPECT_EQ(r.arbiter(), 5u) << "added ones by id, not by when they came";
  EXPECT_EQ(r.ids(), (std::vector<uint64_t>{30, 10, 20, 5, 7}));
  EXPECT_EQ(r.version(), 7u);
}

TEST(Roster, TakesNobodyTwiceNorBack) {
  Roster r({1, 2});
  EXPECT_FALSE(r.add(2));
  EXPECT_TRUE(r.remove(9)) << "before word of its coming";
  EXPECT_TRUE(r.add(9));
  EXPECT_FALSE(r.add(9));
  EXPECT_FALSE(r.living(9));
  EXPECT_TRUE(r.removed(9));
  EXPECT_TRUE(r.living(1));
  EXPECT_FALSE(r.living(3));
}

// Whoever hears what in which order comes to the same, and what comes later has the higher version.
TEST(Roster, IsAUnion) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const auto some = [&] {
      Roster r({1, 2, 3});
      for (auto i = random() % 6; i > 0; --i) {
        const auto what = random() % 3;
        if (what == 0) r.remove(1 + random() % 6);
        if (what == 1) r.add(4 + random() % 3);
        if (what == 2) r.seat(4 + random() % 3);
      }
      return r;
    };
    const Roster a = some(), b = some();
    Roster ab = a, ba = b;
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
