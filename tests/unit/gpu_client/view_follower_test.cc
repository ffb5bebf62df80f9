#include "gpu_client/engine/view_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using QueryStep = ViewFollower::Query::Step;
using CommitStep = ViewFollower::Commit::Step;

constexpr uint64_t kA = 30, kB = 10, kC = 20, kX = 15, kY = 5;  // neither ids nor places tell of the other
constexpr uint64_t kDepth = 8;

wire::View first_view() {
  wire::View view;
  view.window_bytes = 256 * kKiB;
  view.slot_bytes = 16 * kKiB;
  view.reducers = {{.id = kA, .lanes = 2, .weight = 1, .alive = true},
                   {.id = kB, .lanes = 1, .weight = 2, .alive = true},
                   {.id = kC, .lanes = 1, .weight = 1, .alive = true}};
  return view;
}

wire::ViewQuery query(std::vector<uint64_t> removed, std::vector<uint64_t> added = {},
                      std::string addresses = "") {
  wire::ViewQuery q;
  std::ranges::sort(removed);
  std::ranges::sort(added);
  q.version = static_cast<uint16_t>(removed.size() + added.size());
  q.removed = std::move(removed);
  q.added = std::move(added);
  q.addresses = std::move(addresses);
  return q;
}

wire::ViewCommit commit_of(const wire::ViewAnswer& answer, uint64_t base) {
  return {.version = answer.version, .view_hash = answer.view_hash, .base_chunk = base};
}

class ViewFollowerTest : public ::testing::Test {
 protected:
  // Takes the query up and answers it.
  wire::ViewAnswer taken_up(uint64_t from, const wire::ViewQuery& q, uint64_t first_unfinished) {
    EXPECT_EQ(follower_.on_query(from, q).step, QueryStep::kTakeUp);
    auto answer = follower_.answer(first_unfinished);
    EXPECT_TRUE(answer.has_value());
    return answer.value_or(wire::ViewAnswer{});
  }
  void expect_breach(const ViewFollower::Commit& c, Errc code, const char* text) {
    EXPECT_EQ(c.step, CommitStep::kBreach);
    EXPECT_EQ(c.breach.code, code);
    EXPECT_THAT(c.breach.text, HasSubstr(text));
    EXPECT_EQ(follower_.view().version, 0) << "nothing was carried out";
  }
  void expect_breach(uint64_t from, const wire::ViewQuery& q, Errc code, const char* text) {
    const auto taken = follower_.on_query(from, q);
    EXPECT_EQ(taken.step, QueryStep::kBreach);
    EXPECT_EQ(taken.breach.code, code);
    EXPECT_THAT(taken.breach.text, HasSubstr(text));
    EXPECT_EQ(follower_.roster().version(), 0) << "a breach teaches nothing";
  }

  ViewFollower follower_{first_view()};
};

TEST_F(ViewFollowerTest, BeginsInTheFirstView) {
  EXPECT_EQ(follower_.view_hash(), wire::view_hash(first_view()));
  EXPECT_FALSE(follower_.stopped());
  EXPECT_FALSE(follower_.hopeless().has_value());
  EXPECT_FALSE(follower_.answer(0).has_value()) << "nobody has asked";
}

TEST_F(ViewFollowerTest, TellsOfALossOnce) {
  EXPECT_TRUE(follower_.suspect(kB));
  EXPECT_FALSE(follower_.suspect(kB));
  EXPECT_THAT(follower_.known().removed, ElementsAre(kB));
}

TEST_F(ViewFollowerTest, CarriesOutAChange) {
  follower_.suspect(kB);
  const auto taken = follower_.on_query(kA, query({kB}));
  EXPECT_EQ(taken.step, QueryStep::kTakeUp);
  EXPECT_THAT(taken.close, ElementsAre(kB));
  EXPECT_THAT(taken.join, IsEmpty());
  EXPECT_TRUE(follower_.stopped());
  const auto answer = follower_.answer(17);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->version, 1);
  EXPECT_EQ(answer->first_unfinished_chunk, 17u);

  wire::View expected = first_view();
  expected.version = 1;
  expected.reducers[1].alive = false;
  EXPECT_EQ(answer->view_hash, wire::view_hash(expected));

  ASSERT_EQ(follower_.on_commit(kA, commit_of(*answer, 12), 19, kDepth).step, CommitStep::kCarryOut);
  EXPECT_EQ(follower_.base(), 12u);
  EXPECT_EQ(follower_.view_hash(), wire::view_hash(expected));
  EXPECT_EQ(wire::view_hash(follower_.view()), follower_.view_hash());
  EXPECT_EQ(wire::placement_table(follower_.view()), wire::placement_table(expected));
  EXPECT_FALSE(follower_.stopped());
}

TEST_F(ViewFollowerTest, HearsOfALossFromTheQuery) {
  EXPECT_THAT(follower_.on_query(kB, query({kA})).close, ElementsAre(kA));
  EXPECT_FALSE(follower_.suspect(kA)) << "no news any more";
}

TEST_F(ViewFollowerTest, ClosesAReducerOnce) {
  taken_up(kB, query({kA}), 3);
  const auto taken = follower_.on_query(kC, query({kA, kB}));
  EXPECT_EQ(taken.step, QueryStep::kTakeUp);
  EXPECT_THAT(taken.close, ElementsAre(kB));
}

TEST_F(ViewFollowerTest, TellsAnArbiterThatKnowsLess) {
  follower_.suspect(kC);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kTell);
  EXPECT_THAT(follower_.known().removed, ElementsAre(kB, kC)) << "the union";
  EXPECT_FALSE(follower_.stopped());
  EXPECT_EQ(follower_.on_query(kA, query({kB, kC})).step, QueryStep::kTakeUp);
}

TEST_F(ViewFollowerTest, DoesNotAnswerWhatALossHasOvertaken) {
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kTakeUp);
  follower_.suspect(kC);
  EXPECT_FALSE(follower_.answer(3).has_value());
  EXPECT_TRUE(follower_.stopped()) << "until the next query";
  EXPECT_EQ(follower_.on_query(kA, query({kB, kC})).step, QueryStep::kTakeUp);
  EXPECT_TRUE(follower_.answer(3).has_value());
}

TEST_F(ViewFollowerTest, AnswersAgainWhenAskedAgain) {
  const auto answer = taken_up(kA, query({kB}), 5);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kAnswer);
  const auto again = follower_.answer(6);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->view_hash, answer.view_hash);
  EXPECT_EQ(again->first_unfinished_chunk, 6u);

  ASSERT_EQ(follower_.on_commit(kA, commit_of(answer, 5), 6, kDepth).step, CommitStep::kCarryOut);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kAnswer);
  EXPECT_EQ(follower_.answer(9)->version, 1);
  EXPECT_FALSE(follower_.stopped()) << "it has been carried out";
}

TEST_F(ViewFollowerTest, WaitsWhileTheJoiningGoesOn) {
  const auto q = query({}, {kX}, "10.0.0.9:7470");
  EXPECT_EQ(follower_.on_query(kA, q).step, QueryStep::kTakeUp);
  EXPECT_EQ(follower_.on_query(kA, q).step, QueryStep::kNothing);
}

TEST_F(ViewFollowerTest, AnswersNothingThatIsOlderThanWhatItTookUp) {
  const auto answer = taken_up(kA, query({kB}), 5);
  ASSERT_EQ(follower_.on_commit(kA, commit_of(answer, 5), 5, kDepth).step, CommitStep::kCarryOut);
  EXPECT_EQ(follower_.on_query(kA, query({kB}, {kX}, "10.0.0.9:7470")).step, QueryStep::kTakeUp);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kNothing);
  ASSERT_TRUE(follower_.joined(kX, 1));
  EXPECT_EQ(follower_.answer(5)->version, 2);
  EXPECT_EQ(follower_.on_query(kA, query({})).step, QueryStep::kTell) << "the first view does not cover it";
}

TEST_F(ViewFollowerTest, IgnoresAChangeToWhatIs) {
  EXPECT_EQ(follower_.on_query(kA, query({})).step, QueryStep::kNothing);
  EXPECT_FALSE(follower_.stopped());
}

TEST_F(ViewFollowerTest, JoinsWhatIsAdded) {
  const auto taken = follower_.on_query(kA, query({}, {kX, kY}, "10.0.0.5:7470*3,"));
  EXPECT_EQ(taken.step, QueryStep::kTakeUp);
  ASSERT_EQ(taken.join.size(), 2u);
  EXPECT_EQ(taken.join[0].id, kY);
  ASSERT_TRUE(taken.join[0].address.has_value());
  EXPECT_EQ(taken.join[0].address->host, "10.0.0.5");
  EXPECT_EQ(taken.join[1].id, kX);
  EXPECT_FALSE(taken.join[1].address.has_value()) << "nobody knows it";
  ASSERT_TRUE(follower_.joined(kY, 4));
  ASSERT_TRUE(follower_.joined(kX, 2));
  const auto answer = follower_.answer(0);
  ASSERT_TRUE(answer.has_value());

  wire::View expected = first_view();
  expected.version = 2;
  expected.reducers.push_back({.id = kY, .lanes = 4, .weight = 3, .alive = true});
  expected.reducers.push_back({.id = kX, .lanes = 2, .weight = 1, .alive = true});
  EXPECT_EQ(answer->view_hash, wire::view_hash(expected));

  const auto next = follower_.on_query(kA, query({kB}, {kX, kY}, ","));
  EXPECT_THAT(next.join, IsEmpty()) << "they are there already";
}

TEST_F(ViewFollowerTest, TakesTheArbitersWordForAWeight) {
  EXPECT_TRUE(follower_.add(kX, {.host = "10.0.0.9", .port = 7470, .weight = 5}));
  EXPECT_FALSE(follower_.add(kX, {.host = "10.0.0.9", .port = 7470, .weight = 5}));
  EXPECT_THAT(follower_.known().added, ElementsAre(kX));
  EXPECT_EQ(follower_.known().addresses, "10.0.0.9:7470*5");
  const auto taken = follower_.on_query(kA, query({}, {kX}, "10.0.0.9:7470*2"));
  ASSERT_EQ(taken.join.size(), 1u);
  ASSERT_TRUE(follower_.joined(kX, 1));
  wire::View expected = first_view();
  expected.version = 1;
  expected.reducers.push_back({.id = kX, .lanes = 1, .weight = 2, .alive = true});
  EXPECT_EQ(follower_.answer(0)->view_hash, wire::view_hash(expected));
}

TEST_F(ViewFollowerTest, AnswersBeforeTheArbiterKnowsOfAnAddition) {
  follower_.add(kX, {.host = "10.0.0.9", .port = 7470, .weight = 1});
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kTakeUp) << "it has agreed to nothing yet";
  EXPECT_TRUE(follower_.answer(4).has_value());
}

TEST_F(ViewFollowerTest, DoesNotAnswerWhatLacksAnAdditionThatItAgreedTo) {
  static_cast<void>(follower_.on_query(kA, query({}, {kX}, "10.0.0.9:7470")));
  ASSERT_TRUE(follower_.joined(kX, 1));
  ASSERT_TRUE(follower_.answer(4).has_value());
  EXPECT_EQ(follower_.on_query(kB, query({kA})).step, QueryStep::kTell);
  EXPECT_EQ(follower_.on_query(kB, query({kA}, {kX}, "")).step, QueryStep::kTakeUp);
}

TEST_F(ViewFollowerTest, HashesAnAddedOneThatIsRemovedTheSameWhetherItReachedItOrNot) {
  const auto added = query({}, {kX}, "10.0.0.9:7470*4");
  ViewFollower other(first_view());
  static_cast<void>(follower_.on_query(kA, added));
  static_cast<void>(other.on_query(kA, added));
  ASSERT_TRUE(follower_.joined(kX, 3));
  ASSERT_TRUE(follower_.answer(2).has_value());
  other.suspect(kX);
  EXPECT_FALSE(other.answer(2).has_value());

  const auto removed = query({kX}, {kX}, "10.0.0.9:7470*4");
  EXPECT_THAT(follower_.on_query(kA, removed).close, ElementsAre(kX));
  EXPECT_EQ(other.on_query(kA, removed).step, QueryStep::kTakeUp);
  const auto a = follower_.answer(2);
  const auto b = other.answer(2);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->view_hash, b->view_hash);
  ASSERT_EQ(follower_.on_commit(kA, commit_of(*a, 2), 2, kDepth).step, CommitStep::kCarryOut);
  wire::View expected = first_view();
  EXPECT_EQ(wire::placement_table(follower_.view()), wire::placement_table(expected))
      << "lanes are counted without it";
}

TEST_F(ViewFollowerTest, RefusesAViewThatIsTooLargeForPlacement) {
  static_cast<void>(follower_.on_query(kA, query({}, {kX}, "10.0.0.9:7470*1000")));
  EXPECT_TRUE(follower_.joined(kX, 64));
  EXPECT_TRUE(follower_.suspect(kX));
  static_cast<void>(follower_.on_query(kA, query({kX}, {kX, kY}, "10.0.0.5:7470*1000,10.0.0.9:7470*1000")));
  EXPECT_TRUE(follower_.joined(kY, 64)) << "what is removed does not count";

  ViewFollower large(first_view());
  static_cast<void>(large.on_query(kA, query({}, {kX, kY}, "10.0.0.5:7470*1000,10.0.0.9:7470*1000")));
  EXPECT_TRUE(large.joined(kX, 64));
  EXPECT_FALSE(large.joined(kY, 64));
}

TEST_F(ViewFollowerTest, RefusesQueriesThatContradictThemselves) {
  auto q = query({kB});
  q.version = 2;
  expect_breach(kA, q, Errc::kBadView, "numbered 2");
  q = query({kB, kC});
  std::ranges::reverse(q.removed);
  expect_breach(kA, q, Errc::kBadField, "out of order");
  q = query({});
  q.added = {kX, kX};
  q.version = 2;
  q.addresses = ",";
  expect_breach(kA, q, Errc::kBadField, "out of order");
  expect_breach(kA, query({}, {kC}, ""), Errc::kBadField, "first view");
  expect_breach(kB, query({kB}), Errc::kUnexpectedMessage, "another reducer the arbiter");
  expect_breach(kC, query({kA}), Errc::kUnexpectedMessage, "another reducer the arbiter");
  expect_breach(kA, query({kA, kB, kC}), Errc::kUnexpectedMessage, "another reducer the arbiter");
  expect_breach(kA, query({}, {kX}, "10.0.0.1,10.0.0.2"), Errc::kBadField, "2 addresses of 1");
  expect_breach(kA, query({}, {}, "10.0.0.1"), Errc::kBadField, "1 addresses of 0");
  expect_breach(kA, query({}, {kX}, "10.0.0.1:99999"), Errc::kBadField, "99999");
}

TEST_F(ViewFollowerTest, RefusesMoreReducersThanAViewHolds) {
  wire::View view = first_view();
  for (uint64_t id = 1000; view.reducers.size() < wire::kMaxReducers; ++id)
    view.reducers.push_back({.id = id});
  ViewFollower full(view);
  const auto taken = full.on_query(kA, query({}, {kX}, ""));
  EXPECT_EQ(taken.step, QueryStep::kBreach);
  EXPECT_EQ(taken.breach.code, Errc::kTooMany);
}

TEST_F(ViewFollowerTest, RefusesACommitThatItNeverAnswered) {
  expect_breach(follower_.on_commit(kA, {.version = 1}, 0, kDepth), Errc::kBadView, "never answered");
  ASSERT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kTakeUp);
  expect_breach(follower_.on_commit(kA, {.version = 1}, 0, kDepth), Errc::kBadView, "never answered");
}

TEST_F(ViewFollowerTest, RefusesACommitOfAnotherHash) {
  auto commit = commit_of(taken_up(kA, query({kB}), 5), 5);
  commit.view_hash ^= 1;
  expect_breach(follower_.on_commit(kA, commit, 5, kDepth), Errc::kMismatch, "another hash");
}

TEST_F(ViewFollowerTest, RefusesACommitOfWhoDidNotAsk) {
  const auto commit = commit_of(taken_up(kA, query({kB}), 5), 5);
  expect_breach(follower_.on_commit(kC, commit, 5, kDepth), Errc::kUnexpectedMessage, "did not ask");
}

TEST_F(ViewFollowerTest, RefusesABaseThatItCantReach) {
  const auto answer = taken_up(kA, query({kB}), 20);
  expect_breach(follower_.on_commit(kA, commit_of(answer, 21), 20, kDepth), Errc::kBadSequence,
                "no result of 20");
  expect_breach(follower_.on_commit(kA, commit_of(answer, 11), 20, kDepth), Errc::kBadSequence,
                "keeps 8 results");
  EXPECT_EQ(follower_.on_commit(kA, commit_of(answer, 12), 20, kDepth).step, CommitStep::kCarryOut);
}

TEST_F(ViewFollowerTest, IgnoresACommitThatItHasCarriedOut) {
  const auto commit = commit_of(taken_up(kA, query({kB}), 5), 5);
  ASSERT_EQ(follower_.on_commit(kA, commit, 5, kDepth).step, CommitStep::kCarryOut);
  EXPECT_EQ(follower_.on_commit(kA, commit, 500, kDepth).step, CommitStep::kIgnore)
      << "also when it has gone far beyond its base";
  EXPECT_EQ(follower_.base(), 5u);
}

// The answer to the second query says from where on this rank can send again. Carrying out the first commit
// would let it go on, and let go of results that the second may then ask for.
TEST_F(ViewFollowerTest, IgnoresACommitThatALaterQueryHasOvertaken) {
  const auto first = taken_up(kA, query({kB}), 5);
  const auto second = taken_up(kA, query({kB, kC}), 5);
  EXPECT_EQ(follower_.on_commit(kA, commit_of(first, 5), 5, kDepth).step, CommitStep::kIgnore);
  EXPECT_TRUE(follower_.stopped());
  EXPECT_EQ(follower_.on_commit(kA, commit_of(second, 5), 5, kDepth).step, CommitStep::kCarryOut);
  EXPECT_EQ(follower_.on_commit(kA, commit_of(first, 5), 5, kDepth).step, CommitStep::kIgnore)
      << "it has the lower version";
}

// A takes B for lost and B takes A for lost: both ask, with the same version.
TEST_F(ViewFollowerTest, TwoArbitersBecomeOne) {
  const auto answer = taken_up(kA, query({kB}), 7);
  EXPECT_EQ(follower_.on_query(kB, query({kA})).step, QueryStep::kTell);
  EXPECT_THAT(follower_.known().removed, ElementsAre(kB, kA));
  // A has committed already, before it heard. What was answered stays valid.
  EXPECT_EQ(follower_.on_commit(kA, commit_of(answer, 6), 7, kDepth).step, CommitStep::kCarryOut);
  EXPECT_EQ(follower_.view().version, 1);

  const auto last = follower_.on_query(kC, query({kA, kB}));
  EXPECT_EQ(last.step, QueryStep::kTakeUp);
  EXPECT_THAT(last.close, ElementsAre(kA)) << "B was closed before";
  const auto settled = follower_.answer(9);
  ASSERT_TRUE(settled.has_value());
  EXPECT_EQ(follower_.on_commit(kC, commit_of(*settled, 9), 9, kDepth).step, CommitStep::kCarryOut);
  EXPECT_EQ(follower_.view().version, 2);
}

TEST_F(ViewFollowerTest, TwoArbitersWithoutACommit) {
  const auto answer = taken_up(kB, query({kA}), 7);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kTell);
  const auto settled = taken_up(kC, query({kA, kB}), 7);
  EXPECT_EQ(follower_.on_commit(kB, commit_of(answer, 7), 7, kDepth).step, CommitStep::kIgnore);
  EXPECT_EQ(follower_.on_commit(kC, commit_of(settled, 7), 7, kDepth).step, CommitStep::kCarryOut);
}

TEST_F(ViewFollowerTest, SaysWhenNoReducerIsLeft) {
  for (const uint64_t id : {kA, kB}) follower_.suspect(id);
  EXPECT_FALSE(follower_.hopeless().has_value());
  follower_.suspect(kC);
  ASSERT_TRUE(follower_.hopeless().has_value());
  EXPECT_EQ(follower_.hopeless()->code, Errc::kReducerLost);
}

TEST_F(ViewFollowerTest, SaysWhenChangesAreMoreThanCanBeTold) {
  for (uint64_t id = 1000; id < 1000 + wire::kMaxViewChange; ++id) follower_.suspect(id);
  EXPECT_FALSE(follower_.hopeless().has_value());
  follower_.suspect(999);
  ASSERT_TRUE(follower_.hopeless().has_value());
  EXPECT_EQ(follower_.hopeless()->code, Errc::kTooMany);
}

TEST_F(ViewFollowerTest, LeavesOutAddressesThatDoNotFit) {
  const std::string host(200, 'h');
  for (uint64_t id = 1000; id < 1100; ++id) follower_.add(id, {.host = host, .port = 7470, .weight = 1});
  const auto known = follower_.known();
  EXPECT_LE(known.addresses.size(), wire::kMaxAddresses);
  EXPECT_EQ(std::ranges::count(known.addresses, ','), 99);
  auto q = query({});
  q.added = known.added;
  q.addresses = known.addresses;
  q.version = 100;
  ViewFollower other(first_view());
  const auto taken = other.on_query(kA, q);
  ASSERT_EQ(taken.step, QueryStep::kTakeUp) << taken.breach.text;
  EXPECT_TRUE(taken.join.front().address.has_value());
  EXPECT_FALSE(taken.join.back().address.has_value());
}

}  // namespace
}  // namespace sluice::engine
