#include "wire/membership_history.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "wire/recovery_messages.h"
#include "wire/view.h"

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
        const auto change = random() % 4;
        if (change == 0) h.remove(1 + random() % 6);
        if (change == 1) h.add(4 + random() % 3);
        if (change == 2) h.confirm(4 + random() % 3);
        // The rate of a change depends on rank and sequence: only the rank itself makes changes.
        const auto rank = static_cast<uint32_t>(random() % 3);
        const auto sequence = static_cast<uint16_t>(1 + random() % 3);
        if (change == 3)
          h.change_rate({.rank = rank, .sequence = sequence, .rate = 10'000 + 10 * rank + sequence});
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

TEST(MembershipHistory, KeepsTheNewestRateOfEachRank) {
  MembershipHistory h({1, 2});
  EXPECT_TRUE(h.change_rate({.rank = 3, .sequence = 2, .rate = 50'000}));
  EXPECT_FALSE(h.change_rate({.rank = 3, .sequence = 1, .rate = 90'000})) << "older than the known change";
  EXPECT_FALSE(h.change_rate({.rank = 3, .sequence = 2, .rate = 50'000}));
  EXPECT_TRUE(h.change_rate({.rank = 0, .sequence = 1, .rate = 70'000}));
  EXPECT_TRUE(h.change_rate({.rank = 3, .sequence = 3, .rate = 40'000}));
  EXPECT_EQ(h.rate_changes(), (std::vector<RateChange>{{.rank = 0, .sequence = 1, .rate = 70'000},
                                                       {.rank = 3, .sequence = 3, .rate = 40'000}}));
  EXPECT_EQ(h.version(), 4);
  EXPECT_EQ(h.arbiter(), 1u) << "rates change no member";
  MembershipHistory lacks({1, 2});
  lacks.change_rate({.rank = 3, .sequence = 2, .rate = 50'000});
  EXPECT_TRUE(h.covers(lacks));
  EXPECT_FALSE(lacks.covers(h));
}

TEST(MembershipHistory, KnowsWhenVersionsAreExhausted) {
  MembershipHistory h({1, 2});
  h.change_rate({.rank = 0, .sequence = std::numeric_limits<uint16_t>::max(), .rate = 50'000});
  EXPECT_FALSE(h.exceeds_versions());
  h.remove(1);
  EXPECT_TRUE(h.exceeds_versions());
}

TEST(RateChanges, AreSplitIntoMessagesThatFit) {
  EXPECT_TRUE(rate_messages({}).empty());
  std::vector<RateChange> all;
  for (uint32_t rank = 0; rank < kMaxRateChanges + 1; ++rank)
    all.push_back({.rank = rank, .sequence = 1, .rate = kMinLinkRate});
  const std::vector<RateChanges> messages = rate_messages(all);
  ASSERT_EQ(messages.size(), 2u);
  std::vector<RateChange> read;
  for (const RateChanges& message : messages) {
    const auto part = read_rate_changes(message, kMaxRanks);
    ASSERT_TRUE(part);
    read.insert(read.end(), part->begin(), part->end());
  }
  EXPECT_EQ(read, all);
}

TEST(RateChanges, AreCheckedBeforeUse) {
  const RateChanges good{.ranks = {0, 2}, .sequences = {1, 7}, .rates = {kMinLinkRate, kMaxLinkRate}};
  EXPECT_TRUE(read_rate_changes(good, 3));
  EXPECT_FALSE(read_rate_changes(good, 2)) << "no such rank";
  for (const auto change : std::vector<void (*)(RateChanges&)>{
           [](RateChanges& m) { m.ranks.push_back(3); }, [](RateChanges& m) { m.sequences.pop_back(); },
           [](RateChanges& m) { m.rates.push_back(kMinLinkRate); }, [](RateChanges& m) { m.ranks[1] = 0; },
           [](RateChanges& m) { m.sequences[0] = 0; }, [](RateChanges& m) { m.rates[0] = 0; },
           [](RateChanges& m) { ++m.rates[1]; }}) {
    RateChanges bad = good;
    change(bad);
    EXPECT_FALSE(read_rate_changes(bad, 3));
  }
}

}  // namespace
}  // namespace sluice::wire
