// The reducer's side of a change of view, by hand and through all short histories.
#include "reducer/control/view_change.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::reducer {
namespace {

using Step = ViewChange::Step;

wire::ViewAnswer answer_to(const ViewChange& c, uint64_t first_unfinished, uint64_t hash = 7) {
  return {.version = c.query() ? c.query()->version : uint16_t{0},
          .view_hash = hash,
          .first_unfinished_chunk = first_unfinished};
}

wire::RosterChange change(std::vector<uint64_t> removed, std::vector<uint64_t> added = {},
                          std::string addresses = {}, std::vector<uint64_t> seated = {}) {
  return {.removed = std::move(removed),
          .added = std::move(added),
          .seated = std::move(seated),
          .addresses = std::move(addresses)};
}

ViewChange running(uint64_t own, uint32_t ranks, std::vector<uint64_t> reducers) {
  ViewChange c(own, ranks, std::move(reducers), false);
  EXPECT_EQ(c.start(), Step::kNothing);
  return c;
}

TEST(ViewChange, CommitsTheSmallestAnswerOnceAllHaveAnswered) {
  ViewChange c = running(1, 3, {1, 2});
  EXPECT_TRUE(c.arbiter());
  EXPECT_EQ(c.suspect(2), Step::kPropose);
  ASSERT_TRUE(c.query());
  EXPECT_EQ(c.query()->version, 1);
  EXPECT_EQ(c.query()->removed, std::vector<uint64_t>{2});
  EXPECT_EQ(c.answer(0, answer_to(c, 12)), Step::kNothing);
  EXPECT_EQ(c.answer(2, answer_to(c, 10)), Step::kNothing);
  EXPECT_TRUE(c.waits_for(1));
  EXPECT_FALSE(c.waits_for(0));
  EXPECT_EQ(c.answer(1, answer_to(c, 11)), Step::kCommit);
  ASSERT_TRUE(c.commit());
  EXPECT_EQ(c.commit()->version, 1);
  EXPECT_EQ(c.commit()->base_chunk, 10u);
  EXPECT_EQ(c.commit()->view_hash, 7u);
  EXPECT_FALSE(c.query());
  EXPECT_EQ(c.answer(1, {.version = 1, .view_hash = 7, .first_unfinished_chunk = 5}), Step::kNothing);
  EXPECT_EQ(c.suspect(2), Step::kNothing) << "known";
}

TEST(ViewChange, HoldsARankToItsFirstAnswer) {
  ViewChange c = running(1, 2, {1, 2});
  EXPECT_EQ(c.suspect(2), Step::kPropose);
  EXPECT_EQ(c.answer(0, answer_to(c, 10)), Step::kNothing);
  EXPECT_EQ(c.answer(0, answer_to(c, 14)), Step::kNothing) << "one rank twice is not two";
  EXPECT_EQ(c.answer(1, answer_to(c, 20)), Step::kCommit);
  EXPECT_EQ(c.commit()->base_chunk, 10u);
}

TEST(ViewChange, IgnoresAnswersBeforeTheQueryAndOfOtherVersions) {
  ViewChange c = running(1, 1, {1, 2, 3});
  EXPECT_EQ(c.answer(0, {.version = 0, .view_hash = 7, .first_unfinished_chunk = 3}), Step::kNothing);
  EXPECT_EQ(c.answer(0, {.version = 1, .view_hash = 7, .first_unfinished_chunk = 3}), Step::kNothing);
  EXPECT_EQ(c.suspect(2), Step::kPropose);
  EXPECT_EQ(c.answer(0, {.version = 2, .view_hash = 7, .first_unfinished_chunk = 3}), Step::kNothing);
  EXPECT_EQ(c.answer(0, {.version = 1, .view_hash = 7, .first_unfinished_chunk = 4}), Step::kCommit);
  EXPECT_EQ(c.commit()->base_chunk, 4u);
}

TEST(ViewChange, ReplacesAProposalWhoseRosterGrows) {
  ViewChange c = running(1, 2, {1, 2, 3});
  EXPECT_EQ(c.suspect(2), Step::kPropose);
  EXPECT_EQ(c.answer(0, answer_to(c, 5)), Step::kNothing);
  EXPECT_EQ(c.known(change({3}, {9}, "h:1*1")), Step::kPropose);
  EXPECT_EQ(c.query()->version, 3);
  EXPECT_EQ(c.query()->removed, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(c.query()->added, std::vector<uint64_t>{9});
  EXPECT_EQ(c.query()->addresses, "h:1*1");
  EXPECT_TRUE(c.waits_for(0)) << "it answered another version";
  EXPECT_EQ(c.answer(1, {.version = 1, .view_hash = 7, .first_unfinished_chunk = 0}), Step::kNothing);
  EXPECT_EQ(c.answer(1, answer_to(c, 8)), Step::kNothing);
  EXPECT_EQ(c.known(change({2, 3}, {9}, "h:1*1")), Step::kNothing) << "nothing new";
  EXPECT_EQ(c.answer(0, answer_to(c, 6)), Step::kCommit);
  EXPECT_EQ(c.commit()->version, 3);
  EXPECT_EQ(c.commit()->base_chunk, 6u);
}

TEST(ViewChange, OnlyTheFirstThatLivesProposes) {
  ViewChange second = running(2, 1, {1, 2, 3});
  EXPECT_FALSE(second.arbiter());
  EXPECT_EQ(second.suspect(3), Step::kNothing);
  EXPECT_EQ(second.suspect(1), Step::kPropose) << "now it is the first";
  EXPECT_EQ(second.query()->version, 2);
  ViewChange removed = running(1, 1, {1, 2, 3});
  EXPECT_EQ(removed.suspect(3), Step::kPropose);
  EXPECT_EQ(removed.answer(0, answer_to(removed, 4)), Step::kCommit);
  EXPECT_EQ(removed.suspect(2), Step::kPropose);
  EXPECT_EQ(removed.suspect(1), Step::kNoneLeft);
}

TEST(ViewChange, DoesNothingMoreOnceItIsRemovedItself) {
  ViewChange c = running(1, 1, {1, 2, 3});
  EXPECT_EQ(c.suspect(3), Step::kPropose);
  EXPECT_EQ(c.answer(0, answer_to(c, 4)), Step::kCommit);
  EXPECT_EQ(c.suspect(1), Step::kNothing);
  EXPECT_TRUE(c.removed());
  EXPECT_FALSE(c.arbiter());
  EXPECT_FALSE(c.query());
  EXPECT_FALSE(c.commit());
  EXPECT_EQ(c.answer(0, {.version = 2, .view_hash = 7, .first_unfinished_chunk = 4}), Step::kNothing);
  EXPECT_EQ(c.known(change({}, {9})), Step::kNothing);
  EXPECT_TRUE(c.others_live());
}

TEST(ViewChange, EndsWhenRanksDisagreeOnTheView) {
  ViewChange c = running(1, 3, {1, 2});
  EXPECT_EQ(c.suspect(2), Step::kPropose);
  EXPECT_EQ(c.answer(2, answer_to(c, 5, 7)), Step::kNothing);
  EXPECT_EQ(c.answer(1, answer_to(c, 5, 8)), Step::kMismatch);
  EXPECT_EQ(c.first_answerer(), 2u);
}

TEST(ViewChange, WaitsForNobodyWhoHasLeft) {
  ViewChange c = running(1, 3, {1, 2});
  EXPECT_EQ(c.gone(0), Step::kNothing);
  EXPECT_EQ(c.suspect(2), Step::kPropose);
  EXPECT_FALSE(c.waits_for(0));
  EXPECT_EQ(c.answer(0, answer_to(c, 1)), Step::kNothing);
  EXPECT_EQ(c.answer(1, answer_to(c, 9)), Step::kNothing);
  EXPECT_EQ(c.answer(2, answer_to(c, 20)), Step::kCommit);
  EXPECT_EQ(c.commit()->base_chunk, 9u) << "what one that left had does not count";
  ViewChange all = running(1, 2, {1, 2});
  EXPECT_EQ(all.suspect(2), Step::kPropose);
  EXPECT_EQ(all.answer(0, answer_to(all, 3)), Step::kNothing);
  EXPECT_EQ(all.gone(1), Step::kCommit) << "it was the last that was waited for";
  EXPECT_EQ(all.gone(1), Step::kNothing);
  EXPECT_EQ(all.gone(0), Step::kNothing);
}

// Each of two takes the other for lost, on the word of different ranks: the ranks bring them together.
TEST(ViewChange, TwoArbitersComeToOneCommit) {
  ViewChange first = running(1, 2, {1, 2, 3});
  ViewChange second = running(2, 2, {1, 2, 3});
  ViewChange third = running(3, 2, {1, 2, 3});
  EXPECT_EQ(first.suspect(2), Step::kPropose);   // rank 0's word
  EXPECT_EQ(second.suspect(1), Step::kPropose);  // rank 1's word
  EXPECT_EQ(first.query()->version, second.query()->version);
  // Each rank answers what covers what it knows, and tells its roster to the other.
  EXPECT_EQ(first.answer(0, answer_to(first, 5)), Step::kNothing);
  EXPECT_EQ(second.answer(1, answer_to(second, 6)), Step::kNothing);
  EXPECT_EQ(first.known(change({1})), Step::kNothing);
  EXPECT_EQ(second.known(change({2})), Step::kNothing);
  EXPECT_TRUE(first.removed() && second.removed());
  EXPECT_EQ(third.known(change({1})), Step::kNothing);
  EXPECT_EQ(third.known(change({2})), Step::kPropose);
  EXPECT_EQ(third.query()->version, 2);
  EXPECT_EQ(third.answer(0, answer_to(third, 5)), Step::kNothing);
  EXPECT_EQ(third.answer(1, answer_to(third, 6)), Step::kCommit);
  EXPECT_FALSE(first.commit() || second.commit());
}

TEST(ViewChange, KeepsWordsForTheStartOfTheSession) {
  ViewChange c(1, 1, {1, 2}, false);
  EXPECT_EQ(c.suspect(2), Step::kNothing);
  EXPECT_EQ(c.start(), Step::kPropose);
}

// One that was added learns by VIEW_KNOWN which others were: versions count them.
TEST(ViewChange, OneThatCameLaterWaitsToBeToldOfItsComing) {
  ViewChange c(5, 1, {1, 2, 4, 5}, true);
  EXPECT_EQ(c.start(), Step::kNothing);
  EXPECT_EQ(c.known(change({1})), Step::kNothing);
  EXPECT_EQ(c.known(change({2})), Step::kNothing);
  EXPECT_EQ(c.suspect(4), Step::kNothing) << "the only one left, but which version would it propose?";
  EXPECT_FALSE(c.arbiter());
  EXPECT_EQ(c.known(change({1, 2}, {4, 5}, "", {4, 5})), Step::kPropose);
  EXPECT_EQ(c.query()->version, 7) << "three removed, two added, both seated";
  EXPECT_EQ(c.roster().first(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(c.query()->removed, (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_EQ(c.query()->added, (std::vector<uint64_t>{4, 5}));
}

TEST(ViewChange, TheWordOfItsOwnComingIsNoReasonToProposeThatAgain) {
  ViewChange c(5, 1, {1, 5}, true);
  EXPECT_EQ(c.start(), Step::kNothing);
  EXPECT_EQ(c.known(change({1}, {5}, "", {5})), Step::kNothing) << "this is the view in force";
  EXPECT_TRUE(c.arbiter());
  EXPECT_EQ(c.known(change({}, {6})), Step::kPropose);
  ViewChange with_news(5, 1, {1, 5}, true);
  EXPECT_EQ(with_news.start(), Step::kNothing);
  EXPECT_EQ(with_news.known(change({1}, {5, 6}, "", {5})), Step::kPropose) << "6 is not in it";
}

// A newcomer of a smaller id stands before it, but can propose nothing before the ranks have joined it.
TEST(ViewChange, ANewcomerBecomesTheArbiterWithItsSeat) {
  ViewChange c(5, 1, {1, 5}, true);
  EXPECT_EQ(c.start(), Step::kNothing);
  EXPECT_EQ(c.known(change({1}, {5}, "", {5})), Step::kNothing);
  EXPECT_EQ(c.known(change({}, {3}, "new:1*1")), Step::kPropose);
  EXPECT_EQ(c.query()->addresses, "new:1*1,");
  EXPECT_EQ(c.query()->seated, (std::vector<uint64_t>{5}));
  EXPECT_EQ(c.answer(0, answer_to(c, 2)), Step::kCommit);
  EXPECT_TRUE(c.arbiter());
  EXPECT_EQ(c.known(change({}, {3}, "", {3})), Step::kNothing) << "a seat is no reason to propose";
  EXPECT_FALSE(c.arbiter());
  EXPECT_TRUE(c.commit()) << "still to be said again to ranks that missed it";
  EXPECT_EQ(c.suspect(9), Step::kNothing);
  EXPECT_EQ(c.suspect(3), Step::kPropose);
}

// Ranks that know of the seat answer nothing that lacks it.
TEST(ViewChange, ProposesAnewWhenASeatIsHeardOf) {
  ViewChange c = running(1, 1, {1, 2});
  EXPECT_EQ(c.known(change({}, {7})), Step::kPropose);
  EXPECT_EQ(c.answer(0, answer_to(c, 2)), Step::kCommit);
  EXPECT_EQ(c.suspect(2), Step::kPropose);
  EXPECT_EQ(c.query()->version, 2);
  EXPECT_EQ(c.known(change({}, {7}, "", {7})), Step::kPropose);
  EXPECT_EQ(c.query()->version, 3);
  EXPECT_TRUE(c.arbiter());
}

TEST(ViewChange, IsBounded) {
  const auto ids = [](uint64_t from, size_t count) {
    std::vector<uint64_t> list(count);
    for (size_t i = 0; i < count; ++i) list[i] = from + i;
    return list;
  };
  ViewChange removals = running(1, 1, {1, 2});
  EXPECT_EQ(removals.known(change(ids(100, wire::kMaxViewChange))), Step::kPropose);
  EXPECT_EQ(removals.suspect(99), Step::kTooMany);
  ViewChange additions = running(1, 1, {1, 2});
  EXPECT_EQ(additions.known(change({}, ids(100, wire::kMaxViewChange))), Step::kPropose);
  EXPECT_EQ(additions.known(change({}, {99})), Step::kTooMany);
  ViewChange not_its_turn = running(2, 1, {1, 2});
  EXPECT_EQ(not_its_turn.known(change({}, ids(100, wire::kMaxViewChange))), Step::kNothing);
  EXPECT_EQ(not_its_turn.known(change({}, {99})), Step::kTooMany);
  ViewChange addresses = running(1, 1, {1, 2});
  EXPECT_EQ(addresses.known(change({}, {9}, std::string(wire::kMaxAddresses, 'a'))), Step::kPropose);
  EXPECT_EQ(addresses.known(change({}, {8}, "b")), Step::kTooMany);
  // What is proposed at the limits can be said.
  ViewChange full = running(1, 1, {1, 2});
  EXPECT_EQ(full.known(change(ids(1000, wire::kMaxViewChange), ids(2000, wire::kMaxViewChange),
                              std::string(wire::kMaxAddresses - 511, 'a') + std::string(511, ','))),
            Step::kPropose);
  EXPECT_LE(wire::encode_body(*full.query()).size(), wire::kMaxControlPayload);
}

TEST(ViewChange, RefusesAddressesThatDoNotFitTheirReducers) {
  ViewChange c = running(1, 1, {1, 2});
  EXPECT_EQ(c.known(change({}, {8, 9}, "a")), Step::kMalformed);
  EXPECT_EQ(c.known(change({}, {}, "a")), Step::kMalformed);
  EXPECT_EQ(c.roster().version(), 0);
  EXPECT_EQ(c.known(change({}, {8, 9}, ",b:1*1")), Step::kPropose);
  EXPECT_EQ(c.known(change({}, {8}, "a:1*1")), Step::kNothing) << "no other roster";
  EXPECT_EQ(c.known(change({}, {7}, "c:1*1")), Step::kPropose);
  EXPECT_EQ(c.query()->addresses, "c:1*1,a:1*1,b:1*1");
}

// Every history of up to six events among two ranks, three reducers: what is proposed grows, and what is
// committed was answered by all, in that version, from the smallest answer on.
class EveryHistory : public ::testing::TestWithParam<uint64_t> {
 protected:
  static constexpr int kEvents = 6;
  static constexpr uint32_t kRanks = 2;

  struct Seen {
    std::array<std::optional<uint64_t>, kRanks> answers;  // first ones to the open proposal
    std::array<bool, kRanks> gone{};
    uint16_t proposed = 0;
    uint16_t committed = 0;
    std::set<uint64_t> removed;
  };

  void explore(const ViewChange& before, const Seen& seen, int left) {
    if (left == 0 || HasFatalFailure()) return;
    for (uint64_t id = 1; id <= 3; ++id) {
      ViewChange c = before;
      Seen s = seen;
      const bool grew = s.removed.insert(id).second;
      check_growth(c, s, c.suspect(id), grew);
      if (s.removed.size() < 3) explore(c, s, left - 1);
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const uint16_t version : {uint16_t{1}, uint16_t{2}}) {
        ViewChange c = before;
        Seen s = seen;
        const uint64_t chunk = static_cast<uint64_t>(10 * left + static_cast<int>(rank));
        const bool open = c.query() && c.query()->version == version;
        if (open && !s.gone[rank] && !s.answers[rank]) s.answers[rank] = chunk;
        check_commit(c, s,
                     c.answer(rank, {.version = version, .view_hash = 7, .first_unfinished_chunk = chunk}),
                     before.query());
        explore(c, s, left - 1);
      }
      ViewChange c = before;
      Seen s = seen;
      s.gone[rank] = true;
      check_commit(c, s, c.gone(rank), before.query());
      explore(c, s, left - 1);
    }
  }

  static void check_growth(const ViewChange& c, Seen& s, Step step, bool grew) {
    ++histories;
    uint64_t first = 1;
    while (s.removed.contains(first)) ++first;
    ASSERT_EQ(c.arbiter(), first == GetParam());
    if (s.removed.size() == 3) {
      ASSERT_EQ(step, grew ? Step::kNoneLeft : Step::kNothing);
    } else if (grew && first == GetParam()) {
      ASSERT_EQ(step, Step::kPropose);
      ASSERT_EQ(c.query()->version, s.removed.size());
      ASSERT_GT(c.query()->version, s.proposed);
      s.proposed = c.query()->version;
      s.answers = {};
    } else {
      ASSERT_EQ(step, Step::kNothing);
    }
    if (s.removed.contains(GetParam())) {
      ASSERT_FALSE(c.query() || c.commit());
    }
  }

  static void check_commit(const ViewChange& c, Seen& s, Step step,
                           const std::optional<wire::ViewQuery>& query) {
    ++histories;
    std::optional<uint64_t> base;
    bool all = query.has_value();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      if (s.gone[rank]) continue;
      all = all && s.answers[rank];
      if (s.answers[rank]) base = std::min(base.value_or(*s.answers[rank]), *s.answers[rank]);
    }
    ASSERT_EQ(step, all && base ? Step::kCommit : Step::kNothing);
    if (step != Step::kCommit) return;
    ASSERT_EQ(c.commit()->base_chunk, *base);
    ASSERT_EQ(c.commit()->version, query->version);
    ASSERT_GT(c.commit()->version, s.committed);
    s.committed = c.commit()->version;
    ASSERT_FALSE(c.query());
  }

  static inline uint64_t histories = 0;
};

TEST_P(EveryHistory, IsSound) {
  histories = 0;
  explore(running(GetParam(), kRanks, {1, 2, 3}), {}, kEvents);
  EXPECT_GT(histories, 100000u);
}

INSTANTIATE_TEST_SUITE_P(OfEachReducer, EveryHistory, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace sluice::reducer
