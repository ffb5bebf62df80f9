// ViewChange: scripted view changes, and an exhaustive exploration of all short histories.
#include "reducer/control/session/view_change.h"

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

wire::MembershipChange change(std::vector<uint64_t> removed, std::vector<uint64_t> added = {},
                              std::string addresses = {}, std::vector<uint64_t> confirmed = {}) {
  return {.removed = std::move(removed),
          .added = std::move(added),
          .confirmed = std::move(confirmed),
          .addresses = std::move(addresses)};
}

ViewChange running(uint64_t own, uint32_t ranks, std::vector<uint64_t> reducers) {
  ViewChange c(own, ranks, std::move(reducers), false);
  EXPECT_EQ(c.start(), Step::kNothing);
  return c;
}

TEST(ViewChange, CommitsTheSmallestAnswerOnceAllHaveAnswered) {
  ViewChange c = running(1, 3, {1, 2});
  EXPECT_TRUE(c.is_arbiter());
  EXPECT_EQ(c.on_suspect(2), Step::kPropose);
  ASSERT_TRUE(c.query());
  EXPECT_EQ(c.query()->version, 1);
  EXPECT_EQ(c.query()->removed, std::vector<uint64_t>{2});
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 12)), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(2, answer_to(c, 10)), Step::kNothing);
  EXPECT_TRUE(c.waits_for(1));
  EXPECT_FALSE(c.waits_for(0));
  EXPECT_EQ(c.on_view_answer(1, answer_to(c, 11)), Step::kCommit);
  ASSERT_TRUE(c.commit());
  EXPECT_EQ(c.commit()->version, 1);
  EXPECT_EQ(c.commit()->base_chunk, 10u);
  EXPECT_EQ(c.commit()->view_hash, 7u);
  EXPECT_FALSE(c.query());
  EXPECT_EQ(c.on_view_answer(1, {.version = 1, .view_hash = 7, .first_unfinished_chunk = 5}), Step::kNothing);
  EXPECT_EQ(c.on_suspect(2), Step::kNothing) << "already removed";
}

TEST(ViewChange, KeepsTheFirstAnswerOfARank) {
  ViewChange c = running(1, 2, {1, 2});
  EXPECT_EQ(c.on_suspect(2), Step::kPropose);
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 10)), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 14)), Step::kNothing) << "two answers of one rank count once";
  EXPECT_EQ(c.on_view_answer(1, answer_to(c, 20)), Step::kCommit);
  EXPECT_EQ(c.commit()->base_chunk, 10u);
}

TEST(ViewChange, IgnoresAnswersBeforeTheQueryAndOfOtherVersions) {
  ViewChange c = running(1, 1, {1, 2, 3});
  EXPECT_EQ(c.on_view_answer(0, {.version = 0, .view_hash = 7, .first_unfinished_chunk = 3}), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(0, {.version = 1, .view_hash = 7, .first_unfinished_chunk = 3}), Step::kNothing);
  EXPECT_EQ(c.on_suspect(2), Step::kPropose);
  EXPECT_EQ(c.on_view_answer(0, {.version = 2, .view_hash = 7, .first_unfinished_chunk = 3}), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(0, {.version = 1, .view_hash = 7, .first_unfinished_chunk = 4}), Step::kCommit);
  EXPECT_EQ(c.commit()->base_chunk, 4u);
}

TEST(ViewChange, ReplacesAProposalWhenTheHistoryGrows) {
  ViewChange c = running(1, 2, {1, 2, 3});
  EXPECT_EQ(c.on_suspect(2), Step::kPropose);
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 5)), Step::kNothing);
  EXPECT_EQ(c.on_view_known(change({3}, {9}, "h:1*1")), Step::kPropose);
  EXPECT_EQ(c.query()->version, 3);
  EXPECT_EQ(c.query()->removed, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(c.query()->added, std::vector<uint64_t>{9});
  EXPECT_EQ(c.query()->addresses, "h:1*1");
  EXPECT_TRUE(c.waits_for(0)) << "its answer was for another version";
  EXPECT_EQ(c.on_view_answer(1, {.version = 1, .view_hash = 7, .first_unfinished_chunk = 0}), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(1, answer_to(c, 8)), Step::kNothing);
  EXPECT_EQ(c.on_view_known(change({2, 3}, {9}, "h:1*1")), Step::kNothing) << "nothing new";
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 6)), Step::kCommit);
  EXPECT_EQ(c.commit()->version, 3);
  EXPECT_EQ(c.commit()->base_chunk, 6u);
}

TEST(ViewChange, OnlyTheFirstActiveReducerProposes) {
  ViewChange second = running(2, 1, {1, 2, 3});
  EXPECT_FALSE(second.is_arbiter());
  EXPECT_EQ(second.on_suspect(3), Step::kNothing);
  EXPECT_EQ(second.on_suspect(1), Step::kPropose) << "reducer 2 is now the first active one";
  EXPECT_EQ(second.query()->version, 2);
  ViewChange removed = running(1, 1, {1, 2, 3});
  EXPECT_EQ(removed.on_suspect(3), Step::kPropose);
  EXPECT_EQ(removed.on_view_answer(0, answer_to(removed, 4)), Step::kCommit);
  EXPECT_EQ(removed.on_suspect(2), Step::kPropose);
  EXPECT_EQ(removed.on_suspect(1), Step::kNoneLeft);
}

TEST(ViewChange, DoesNothingAfterItsOwnRemoval) {
  ViewChange c = running(1, 1, {1, 2, 3});
  EXPECT_EQ(c.on_suspect(3), Step::kPropose);
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 4)), Step::kCommit);
  EXPECT_EQ(c.on_suspect(1), Step::kNothing);
  EXPECT_TRUE(c.is_removed());
  EXPECT_FALSE(c.is_arbiter());
  EXPECT_FALSE(c.query());
  EXPECT_FALSE(c.commit());
  EXPECT_EQ(c.on_view_answer(0, {.version = 2, .view_hash = 7, .first_unfinished_chunk = 4}), Step::kNothing);
  EXPECT_EQ(c.on_view_known(change({}, {9})), Step::kNothing);
  EXPECT_TRUE(c.has_other_reducers());
}

TEST(ViewChange, EndsWhenRanksDisagreeOnTheView) {
  ViewChange c = running(1, 3, {1, 2});
  EXPECT_EQ(c.on_suspect(2), Step::kPropose);
  EXPECT_EQ(c.on_view_answer(2, answer_to(c, 5, 7)), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(1, answer_to(c, 5, 8)), Step::kMismatch);
  EXPECT_EQ(c.first_answered_rank(), 2u);
}

TEST(ViewChange, NeedsNoAnswerOfARankThatLeft) {
  ViewChange c = running(1, 3, {1, 2});
  EXPECT_EQ(c.on_rank_left(0), Step::kNothing);
  EXPECT_EQ(c.on_suspect(2), Step::kPropose);
  EXPECT_FALSE(c.waits_for(0));
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 1)), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(1, answer_to(c, 9)), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(2, answer_to(c, 20)), Step::kCommit);
  EXPECT_EQ(c.commit()->base_chunk, 9u) << "the answer of a rank that left does not count";
  ViewChange all = running(1, 2, {1, 2});
  EXPECT_EQ(all.on_suspect(2), Step::kPropose);
  EXPECT_EQ(all.on_view_answer(0, answer_to(all, 3)), Step::kNothing);
  EXPECT_EQ(all.on_rank_left(1), Step::kCommit) << "its answer was the last one missing";
  EXPECT_EQ(all.on_rank_left(1), Step::kNothing);
  EXPECT_EQ(all.on_rank_left(0), Step::kNothing);
}

// Two reducers each remove the other, suspected by different ranks. The ranks spread both removals.
TEST(ViewChange, TwoArbitersLeadToOneCommit) {
  ViewChange first = running(1, 2, {1, 2, 3});
  ViewChange second = running(2, 2, {1, 2, 3});
  ViewChange third = running(3, 2, {1, 2, 3});
  EXPECT_EQ(first.on_suspect(2), Step::kPropose);   // reported by rank 0
  EXPECT_EQ(second.on_suspect(1), Step::kPropose);  // reported by rank 1
  EXPECT_EQ(first.query()->version, second.query()->version);
  // Each rank answers a proposal that covers its history, and reports its history to the other reducer.
  EXPECT_EQ(first.on_view_answer(0, answer_to(first, 5)), Step::kNothing);
  EXPECT_EQ(second.on_view_answer(1, answer_to(second, 6)), Step::kNothing);
  EXPECT_EQ(first.on_view_known(change({1})), Step::kNothing);
  EXPECT_EQ(second.on_view_known(change({2})), Step::kNothing);
  EXPECT_TRUE(first.is_removed() && second.is_removed());
  EXPECT_EQ(third.on_view_known(change({1})), Step::kNothing);
  EXPECT_EQ(third.on_view_known(change({2})), Step::kPropose);
  EXPECT_EQ(third.query()->version, 2);
  EXPECT_EQ(third.on_view_answer(0, answer_to(third, 5)), Step::kNothing);
  EXPECT_EQ(third.on_view_answer(1, answer_to(third, 6)), Step::kCommit);
  EXPECT_FALSE(first.commit() || second.commit());
}

TEST(ViewChange, ProposesReportedChangesAtTheStartOfTheSession) {
  ViewChange c(1, 1, {1, 2}, false);
  EXPECT_EQ(c.on_suspect(2), Step::kNothing);
  EXPECT_EQ(c.start(), Step::kPropose);
}

// An added reducer learns from VIEW_KNOWN which reducers were added: versions count them.
TEST(ViewChange, AnAddedReducerProposesNothingBeforeViewKnown) {
  ViewChange c(5, 1, {1, 2, 4, 5}, true);
  EXPECT_EQ(c.start(), Step::kNothing);
  EXPECT_EQ(c.on_view_known(change({1})), Step::kNothing);
  EXPECT_EQ(c.on_view_known(change({2})), Step::kNothing);
  EXPECT_EQ(c.on_suspect(4), Step::kNothing) << "the version of a proposal is unknown";
  EXPECT_FALSE(c.is_arbiter());
  EXPECT_EQ(c.on_view_known(change({1, 2}, {4, 5}, "", {4, 5})), Step::kPropose);
  EXPECT_EQ(c.query()->version, 7) << "three removed, two added, both confirmed";
  EXPECT_EQ(c.history().first(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(c.query()->removed, (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_EQ(c.query()->added, (std::vector<uint64_t>{4, 5}));
}

TEST(ViewChange, DoesNotProposeItsOwnAddition) {
  ViewChange c(5, 1, {1, 5}, true);
  EXPECT_EQ(c.start(), Step::kNothing);
  EXPECT_EQ(c.on_view_known(change({1}, {5}, "", {5})), Step::kNothing) << "this view is in force";
  EXPECT_TRUE(c.is_arbiter());
  EXPECT_EQ(c.on_view_known(change({}, {6})), Step::kPropose);
  ViewChange with_addition(5, 1, {1, 5}, true);
  EXPECT_EQ(with_addition.start(), Step::kNothing);
  EXPECT_EQ(with_addition.on_view_known(change({1}, {5, 6}, "", {5})), Step::kPropose)
      << "the view in force lacks 6";
}

// An added reducer with a smaller id precedes this one, but becomes the arbiter only once it is confirmed.
TEST(ViewChange, AnAddedReducerBecomesTheArbiterOnceConfirmed) {
  ViewChange c(5, 1, {1, 5}, true);
  EXPECT_EQ(c.start(), Step::kNothing);
  EXPECT_EQ(c.on_view_known(change({1}, {5}, "", {5})), Step::kNothing);
  EXPECT_EQ(c.on_view_known(change({}, {3}, "new:1*1")), Step::kPropose);
  EXPECT_EQ(c.query()->addresses, "new:1*1,");
  EXPECT_EQ(c.query()->confirmed, (std::vector<uint64_t>{5}));
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 2)), Step::kCommit);
  EXPECT_TRUE(c.is_arbiter());
  EXPECT_EQ(c.on_view_known(change({}, {3}, "", {3})), Step::kNothing)
      << "a confirmation alone needs no proposal";
  EXPECT_FALSE(c.is_arbiter());
  EXPECT_TRUE(c.commit()) << "ranks that missed it still need it";
  EXPECT_EQ(c.on_suspect(9), Step::kNothing);
  EXPECT_EQ(c.on_suspect(3), Step::kPropose);
}

// Ranks that know of the confirmation do not answer a proposal that lacks it.
TEST(ViewChange, ProposesAgainAfterAConfirmation) {
  ViewChange c = running(1, 1, {1, 2});
  EXPECT_EQ(c.on_view_known(change({}, {7})), Step::kPropose);
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 2)), Step::kCommit);
  EXPECT_EQ(c.on_suspect(2), Step::kPropose);
  EXPECT_EQ(c.query()->version, 2);
  EXPECT_EQ(c.on_view_known(change({}, {7}, "", {7})), Step::kPropose);
  EXPECT_EQ(c.query()->version, 3);
  EXPECT_TRUE(c.is_arbiter());
}

TEST(ViewChange, IsBounded) {
  const auto ids = [](uint64_t from, size_t count) {
    std::vector<uint64_t> list(count);
    for (size_t i = 0; i < count; ++i) list[i] = from + i;
    return list;
  };
  ViewChange removals = running(1, 1, {1, 2});
  EXPECT_EQ(removals.on_view_known(change(ids(100, wire::kMaxViewChange))), Step::kPropose);
  EXPECT_EQ(removals.on_suspect(99), Step::kTooMany);
  ViewChange additions = running(1, 1, {1, 2});
  EXPECT_EQ(additions.on_view_known(change({}, ids(100, wire::kMaxViewChange))), Step::kPropose);
  EXPECT_EQ(additions.on_view_known(change({}, {99})), Step::kTooMany);
  ViewChange not_arbiter = running(2, 1, {1, 2});
  EXPECT_EQ(not_arbiter.on_view_known(change({}, ids(100, wire::kMaxViewChange))), Step::kNothing);
  EXPECT_EQ(not_arbiter.on_view_known(change({}, {99})), Step::kTooMany);
  ViewChange addresses = running(1, 1, {1, 2});
  EXPECT_EQ(addresses.on_view_known(change({}, {9}, std::string(wire::kMaxAddresses, 'a'))), Step::kPropose);
  EXPECT_EQ(addresses.on_view_known(change({}, {8}, "b")), Step::kTooMany);
  // The largest proposal fits into a frame.
  ViewChange full = running(1, 1, {1, 2});
  EXPECT_EQ(full.on_view_known(change(ids(1000, wire::kMaxViewChange), ids(2000, wire::kMaxViewChange),
                                      std::string(wire::kMaxAddresses - 511, 'a') + std::string(511, ','))),
            Step::kPropose);
  EXPECT_LE(wire::encode_body(*full.query()).size(), wire::kMaxControlPayload);
}

TEST(ViewChange, ProposesChangedLinkRates) {
  const wire::RateChanges slower{.ranks = {1}, .sequences = {1}, .rates = {50'000'000}};
  ViewChange c = running(1, 2, {1, 2});
  EXPECT_EQ(c.on_rate_changes(slower), Step::kPropose);
  EXPECT_EQ(c.query()->version, 1);
  EXPECT_TRUE(c.query()->removed.empty());
  EXPECT_EQ(c.query_rates(), (std::vector<wire::RateChange>{{.rank = 1, .sequence = 1, .rate = 50'000'000}}));
  EXPECT_EQ(c.on_rate_changes(slower), Step::kNothing) << "known";
  EXPECT_EQ(c.on_view_answer(0, answer_to(c, 4)), Step::kNothing);
  EXPECT_EQ(c.on_view_answer(1, answer_to(c, 5)), Step::kCommit);
  EXPECT_EQ(c.on_suspect(2), Step::kPropose);
  EXPECT_EQ(c.query()->version, 2);
  EXPECT_EQ(c.query_rates().size(), 1u) << "every later view has the rate";
  // The next arbiter proposes what it has heard.
  ViewChange next = running(2, 2, {1, 2});
  EXPECT_EQ(next.on_rate_changes(slower), Step::kNothing);
  EXPECT_EQ(next.on_suspect(1), Step::kPropose);
  EXPECT_EQ(next.query()->version, 2);
  EXPECT_EQ(next.query_rates().size(), 1u);
  wire::RateChanges no_rank = slower;
  no_rank.ranks[0] = 2;
  EXPECT_EQ(c.on_rate_changes(no_rank), Step::kMalformed);
  const wire::RateChanges many{.ranks = {0, 1}, .sequences = {0xffff, 0xffff}, .rates = {50'000, 50'000}};
  EXPECT_EQ(c.on_rate_changes(many), Step::kTooMany);
}

TEST(ViewChange, RefusesAddressesThatDoNotFitTheirReducers) {
  ViewChange c = running(1, 1, {1, 2});
  EXPECT_EQ(c.on_view_known(change({}, {8, 9}, "a")), Step::kMalformed);
  EXPECT_EQ(c.on_view_known(change({}, {}, "a")), Step::kMalformed);
  EXPECT_EQ(c.history().version(), 0);
  EXPECT_EQ(c.on_view_known(change({}, {8, 9}, ",b:1*1")), Step::kPropose);
  EXPECT_EQ(c.on_view_known(change({}, {8}, "a:1*1")), Step::kNothing) << "the history is unchanged";
  EXPECT_EQ(c.on_view_known(change({}, {7}, "c:1*1")), Step::kPropose);
  EXPECT_EQ(c.query()->addresses, "c:1*1,a:1*1,b:1*1");
}

// Explores every history of up to six events with two ranks and three reducers. Proposals must grow. A commit
// needs answers of all ranks to its version and starts at the smallest answered chunk.
class EveryHistory : public ::testing::TestWithParam<uint64_t> {
 protected:
  static constexpr int kEvents = 6;
  static constexpr uint32_t kRanks = 2;

  struct Seen {
    std::array<std::optional<uint64_t>, kRanks> answers;  // first answers to the open proposal
    std::array<bool, kRanks> has_left{};
    uint16_t proposed = 0;
    uint16_t committed = 0;
    std::set<uint64_t> removed;
  };

  void explore(const ViewChange& before, const Seen& seen, int left) {
    if (left == 0 || HasFatalFailure()) return;
    for (uint64_t id = 1; id <= 3; ++id) {
      ViewChange c = before;
      Seen s = seen;
      const bool has_grown = s.removed.insert(id).second;
      check_growth(c, s, c.on_suspect(id), has_grown);
      if (s.removed.size() < 3) explore(c, s, left - 1);
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const uint16_t version : {uint16_t{1}, uint16_t{2}}) {
        ViewChange c = before;
        Seen s = seen;
        const uint64_t chunk = static_cast<uint64_t>(10 * left + static_cast<int>(rank));
        const bool open = c.query() && c.query()->version == version;
        if (open && !s.has_left[rank] && !s.answers[rank]) s.answers[rank] = chunk;
        check_commit(
            c, s,
            c.on_view_answer(rank, {.version = version, .view_hash = 7, .first_unfinished_chunk = chunk}),
            before.query());
        explore(c, s, left - 1);
      }
      ViewChange c = before;
      Seen s = seen;
      s.has_left[rank] = true;
      check_commit(c, s, c.on_rank_left(rank), before.query());
      explore(c, s, left - 1);
    }
  }

  static void check_growth(const ViewChange& c, Seen& s, Step step, bool has_grown) {
    ++histories;
    uint64_t first = 1;
    while (s.removed.contains(first)) ++first;
    ASSERT_EQ(c.is_arbiter(), first == GetParam());
    if (s.removed.size() == 3) {
      ASSERT_EQ(step, has_grown ? Step::kNoneLeft : Step::kNothing);
    } else if (has_grown && first == GetParam()) {
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
      if (s.has_left[rank]) continue;
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
