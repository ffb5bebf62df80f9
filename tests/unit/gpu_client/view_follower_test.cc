#include "gpu_client/engine/membership/view_follower.h"

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

constexpr uint64_t kA = 30, kB = 10, kC = 20, kX = 15, kY = 5;  // ids are not in the order of the view
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
  // Accepts the query and returns the answer.
  wire::ViewAnswer accept(uint64_t from, const wire::ViewQuery& q, uint64_t first_unfinished) {
    EXPECT_EQ(follower_.on_query(from, q).step, QueryStep::kAccept);
    auto answer = follower_.answer(first_unfinished);
    EXPECT_TRUE(answer.has_value());
    return answer.value_or(wire::ViewAnswer{});
  }
  void expect_violation(const ViewFollower::Commit& c, Errc code, const char* text) {
    EXPECT_EQ(c.step, CommitStep::kViolation);
    EXPECT_EQ(c.violation.code, code);
    EXPECT_THAT(c.violation.text, HasSubstr(text));
    EXPECT_EQ(follower_.view().version, 0) << "no commit was executed";
  }
  void expect_violation(uint64_t from, const wire::ViewQuery& q, Errc code, const char* text) {
    const auto result = follower_.on_query(from, q);
    EXPECT_EQ(result.step, QueryStep::kViolation);
    EXPECT_EQ(result.violation.code, code);
    EXPECT_THAT(result.violation.text, HasSubstr(text));
    EXPECT_EQ(follower_.history().version(), 0) << "a violation must not change the history";
  }

  ViewFollower follower_{first_view()};
};

TEST_F(ViewFollowerTest, StartsInTheFirstView) {
  EXPECT_EQ(follower_.view_hash(), wire::view_hash(first_view()));
  EXPECT_FALSE(follower_.is_stopped());
  EXPECT_FALSE(follower_.fatal_error().has_value());
  EXPECT_FALSE(follower_.answer(0).has_value()) << "there was no query";
}

TEST_F(ViewFollowerTest, ReportsALossOnce) {
  EXPECT_TRUE(follower_.suspect(kB));
  EXPECT_FALSE(follower_.suspect(kB));
  EXPECT_THAT(follower_.known_changes().removed, ElementsAre(kB));
}

TEST_F(ViewFollowerTest, ExecutesAChange) {
  follower_.suspect(kB);
  const auto result = follower_.on_query(kA, query({kB}));
  EXPECT_EQ(result.step, QueryStep::kAccept);
  EXPECT_THAT(result.close, ElementsAre(kB));
  EXPECT_THAT(result.join, IsEmpty());
  EXPECT_TRUE(follower_.is_stopped());
  const auto answer = follower_.answer(17);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->version, 1);
  EXPECT_EQ(answer->first_unfinished_chunk, 17u);

  wire::View expected = first_view();
  expected.version = 1;
  expected.reducers[1].alive = false;
  EXPECT_EQ(answer->view_hash, wire::view_hash(expected));

  ASSERT_EQ(follower_.on_commit(kA, commit_of(*answer, 12), 19, kDepth).step, CommitStep::kRestart);
  EXPECT_EQ(follower_.base(), 12u);
  EXPECT_EQ(follower_.view_hash(), wire::view_hash(expected));
  EXPECT_EQ(wire::view_hash(follower_.view()), follower_.view_hash());
  EXPECT_EQ(wire::placement_table(follower_.view()), wire::placement_table(expected));
  EXPECT_FALSE(follower_.is_stopped());
}

TEST_F(ViewFollowerTest, LearnsOfALossFromTheQuery) {
  EXPECT_THAT(follower_.on_query(kB, query({kA})).close, ElementsAre(kA));
  EXPECT_FALSE(follower_.suspect(kA)) << "known already";
}

TEST_F(ViewFollowerTest, ClosesAReducerOnce) {
  accept(kB, query({kA}), 3);
  const auto result = follower_.on_query(kC, query({kA, kB}));
  EXPECT_EQ(result.step, QueryStep::kAccept);
  EXPECT_THAT(result.close, ElementsAre(kB));
}

TEST_F(ViewFollowerTest, InformsAnArbiterThatKnowsLess) {
  follower_.suspect(kC);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kSendKnown);
  EXPECT_THAT(follower_.known_changes().removed, ElementsAre(kB, kC)) << "the union of both";
  EXPECT_FALSE(follower_.is_stopped());
  EXPECT_EQ(follower_.on_query(kA, query({kB, kC})).step, QueryStep::kAccept);
}

TEST_F(ViewFollowerTest, DoesNotAnswerAQueryThatLacksALaterLoss) {
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kAccept);
  follower_.suspect(kC);
  EXPECT_FALSE(follower_.answer(3).has_value());
  EXPECT_TRUE(follower_.is_stopped()) << "until the next query";
  EXPECT_EQ(follower_.on_query(kA, query({kB, kC})).step, QueryStep::kAccept);
  EXPECT_TRUE(follower_.answer(3).has_value());
}

TEST_F(ViewFollowerTest, RepeatsItsAnswer) {
  const auto answer = accept(kA, query({kB}), 5);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kRepeatAnswer);
  const auto again = follower_.answer(6);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->view_hash, answer.view_hash);
  EXPECT_EQ(again->first_unfinished_chunk, 6u);

  ASSERT_EQ(follower_.on_commit(kA, commit_of(answer, 5), 6, kDepth).step, CommitStep::kRestart);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kRepeatAnswer);
  EXPECT_EQ(follower_.answer(9)->version, 1);
  EXPECT_FALSE(follower_.is_stopped()) << "the commit was executed";
}

TEST_F(ViewFollowerTest, IgnoresARepeatedQueryDuringItsJoins) {
  const auto q = query({}, {kX}, "10.0.0.9:7470");
  EXPECT_EQ(follower_.on_query(kA, q).step, QueryStep::kAccept);
  EXPECT_EQ(follower_.on_query(kA, q).step, QueryStep::kIgnore);
}

TEST_F(ViewFollowerTest, IgnoresQueriesOlderThanTheAcceptedOne) {
  const auto answer = accept(kA, query({kB}), 5);
  ASSERT_EQ(follower_.on_commit(kA, commit_of(answer, 5), 5, kDepth).step, CommitStep::kRestart);
  EXPECT_EQ(follower_.on_query(kA, query({kB}, {kX}, "10.0.0.9:7470")).step, QueryStep::kAccept);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kIgnore);
  ASSERT_TRUE(follower_.set_joined(kX, 1));
  EXPECT_EQ(follower_.answer(5)->version, 2);
  EXPECT_EQ(follower_.on_query(kA, query({})).step, QueryStep::kSendKnown)
      << "the first view does not cover it";
}

TEST_F(ViewFollowerTest, IgnoresAQueryForThePresentView) {
  EXPECT_EQ(follower_.on_query(kA, query({})).step, QueryStep::kIgnore);
  EXPECT_FALSE(follower_.is_stopped());
}

TEST_F(ViewFollowerTest, JoinsAddedReducers) {
  const auto result = follower_.on_query(kA, query({}, {kX, kY}, "10.0.0.5:7470*3,"));
  EXPECT_EQ(result.step, QueryStep::kAccept);
  ASSERT_EQ(result.join.size(), 2u);
  EXPECT_EQ(result.join[0].id, kY);
  ASSERT_TRUE(result.join[0].address.has_value());
  EXPECT_EQ(result.join[0].address->host, "10.0.0.5");
  EXPECT_EQ(result.join[1].id, kX);
  EXPECT_FALSE(result.join[1].address.has_value()) << "no address in the query";
  ASSERT_TRUE(follower_.set_joined(kY, 4));
  ASSERT_TRUE(follower_.set_joined(kX, 2));
  const auto answer = follower_.answer(0);
  ASSERT_TRUE(answer.has_value());

  wire::View expected = first_view();
  expected.version = 2;
  expected.reducers.push_back({.id = kY, .lanes = 4, .weight = 3, .alive = true});
  expected.reducers.push_back({.id = kX, .lanes = 2, .weight = 1, .alive = true});
  EXPECT_EQ(answer->view_hash, wire::view_hash(expected));

  const auto next = follower_.on_query(kA, query({kB}, {kX, kY}, ","));
  EXPECT_THAT(next.join, IsEmpty()) << "already joined";
}

TEST_F(ViewFollowerTest, UsesTheArbitersWeight) {
  EXPECT_TRUE(follower_.add(kX, {.host = "10.0.0.9", .port = 7470, .weight = 5}));
  EXPECT_FALSE(follower_.add(kX, {.host = "10.0.0.9", .port = 7470, .weight = 5}));
  EXPECT_THAT(follower_.known_changes().added, ElementsAre(kX));
  EXPECT_EQ(follower_.known_changes().addresses, "10.0.0.9:7470*5");
  const auto result = follower_.on_query(kA, query({}, {kX}, "10.0.0.9:7470*2"));
  ASSERT_EQ(result.join.size(), 1u);
  ASSERT_TRUE(follower_.set_joined(kX, 1));
  wire::View expected = first_view();
  expected.version = 1;
  expected.reducers.push_back({.id = kX, .lanes = 1, .weight = 2, .alive = true});
  EXPECT_EQ(follower_.answer(0)->view_hash, wire::view_hash(expected));
}

TEST_F(ViewFollowerTest, AnswersBeforeTheArbiterKnowsOfAnAddition) {
  follower_.add(kX, {.host = "10.0.0.9", .port = 7470, .weight = 1});
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kAccept)
      << "the addition was not answered yet";
  EXPECT_TRUE(follower_.answer(4).has_value());
}

TEST_F(ViewFollowerTest, DoesNotAcceptAQueryThatLacksAnAnsweredAddition) {
  static_cast<void>(follower_.on_query(kA, query({}, {kX}, "10.0.0.9:7470")));
  ASSERT_TRUE(follower_.set_joined(kX, 1));
  ASSERT_TRUE(follower_.answer(4).has_value());
  EXPECT_EQ(follower_.on_query(kB, query({kA})).step, QueryStep::kSendKnown);
  EXPECT_EQ(follower_.on_query(kB, query({kA}, {kX}, "")).step, QueryStep::kAccept);
}

TEST_F(ViewFollowerTest, HashOfARemovedAdditionDoesNotDependOnItsJoin) {
  const auto added = query({}, {kX}, "10.0.0.9:7470*4");
  ViewFollower other(first_view());
  static_cast<void>(follower_.on_query(kA, added));
  static_cast<void>(other.on_query(kA, added));
  ASSERT_TRUE(follower_.set_joined(kX, 3));
  ASSERT_TRUE(follower_.answer(2).has_value());
  other.suspect(kX);
  EXPECT_FALSE(other.answer(2).has_value());

  const auto removed = query({kX}, {kX}, "10.0.0.9:7470*4");
  EXPECT_THAT(follower_.on_query(kA, removed).close, ElementsAre(kX));
  EXPECT_EQ(other.on_query(kA, removed).step, QueryStep::kAccept);
  const auto a = follower_.answer(2);
  const auto b = other.answer(2);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->view_hash, b->view_hash);
  ASSERT_EQ(follower_.on_commit(kA, commit_of(*a, 2), 2, kDepth).step, CommitStep::kRestart);
  wire::View expected = first_view();
  EXPECT_EQ(wire::placement_table(follower_.view()), wire::placement_table(expected))
      << "its lanes do not count";
}

TEST_F(ViewFollowerTest, RejectsAViewThatIsTooLargeForPlacement) {
  static_cast<void>(follower_.on_query(kA, query({}, {kX}, "10.0.0.9:7470*1000")));
  EXPECT_TRUE(follower_.set_joined(kX, 64));
  EXPECT_TRUE(follower_.suspect(kX));
  static_cast<void>(follower_.on_query(kA, query({kX}, {kX, kY}, "10.0.0.5:7470*1000,10.0.0.9:7470*1000")));
  EXPECT_TRUE(follower_.set_joined(kY, 64)) << "removed reducers do not count";

  ViewFollower large(first_view());
  static_cast<void>(large.on_query(kA, query({}, {kX, kY}, "10.0.0.5:7470*1000,10.0.0.9:7470*1000")));
  EXPECT_TRUE(large.set_joined(kX, 64));
  EXPECT_FALSE(large.set_joined(kY, 64));
}

TEST_F(ViewFollowerTest, RejectsInconsistentQueries) {
  auto q = query({kB});
  q.version = 2;
  expect_violation(kA, q, Errc::kBadView, "has version 2");
  q = query({kB, kC});
  std::ranges::reverse(q.removed);
  expect_violation(kA, q, Errc::kBadField, "out of order");
  q = query({});
  q.added = {kX, kX};
  q.version = 2;
  q.addresses = ",";
  expect_violation(kA, q, Errc::kBadField, "out of order");
  expect_violation(kA, query({}, {kC}, ""), Errc::kBadField, "first view");
  expect_violation(kB, query({kB}), Errc::kUnexpectedMessage, "not the arbiter of its view");
  expect_violation(kC, query({kA}), Errc::kUnexpectedMessage, "not the arbiter of its view");
  expect_violation(kA, query({kA, kB, kC}), Errc::kUnexpectedMessage, "not the arbiter of its view");
  expect_violation(kA, query({}, {kX}, "10.0.0.1,10.0.0.2"), Errc::kBadField, "2 addresses for 1");
  expect_violation(kA, query({}, {}, "10.0.0.1"), Errc::kBadField, "1 addresses for 0");
  expect_violation(kA, query({}, {kX}, "10.0.0.1:99999"), Errc::kBadField, "99999");
}

TEST_F(ViewFollowerTest, RejectsMoreReducersThanAViewHolds) {
  wire::View view = first_view();
  for (uint64_t id = 1000; view.reducers.size() < wire::kMaxReducers; ++id)
    view.reducers.push_back({.id = id});
  ViewFollower full(view);
  const auto result = full.on_query(kA, query({}, {kX}, ""));
  EXPECT_EQ(result.step, QueryStep::kViolation);
  EXPECT_EQ(result.violation.code, Errc::kTooMany);
}

TEST_F(ViewFollowerTest, RejectsACommitWithoutAnAnswer) {
  expect_violation(follower_.on_commit(kA, {.version = 1}, 0, kDepth), Errc::kBadView, "never answered");
  ASSERT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kAccept);
  expect_violation(follower_.on_commit(kA, {.version = 1}, 0, kDepth), Errc::kBadView, "never answered");
}

TEST_F(ViewFollowerTest, RejectsACommitWithAnotherHash) {
  auto commit = commit_of(accept(kA, query({kB}), 5), 5);
  commit.view_hash ^= 1;
  expect_violation(follower_.on_commit(kA, commit, 5, kDepth), Errc::kMismatch, "another hash");
}

TEST_F(ViewFollowerTest, RejectsACommitOfAnotherReducer) {
  const auto commit = commit_of(accept(kA, query({kB}), 5), 5);
  expect_violation(follower_.on_commit(kC, commit, 5, kDepth), Errc::kUnexpectedMessage,
                   "sent no such query");
}

TEST_F(ViewFollowerTest, RejectsAnUnreachableBase) {
  const auto answer = accept(kA, query({kB}), 20);
  expect_violation(follower_.on_commit(kA, commit_of(answer, 21), 20, kDepth), Errc::kBadSequence,
                   "no result of chunk 20");
  expect_violation(follower_.on_commit(kA, commit_of(answer, 11), 20, kDepth), Errc::kBadSequence,
                   "keeps 8 results");
  EXPECT_EQ(follower_.on_commit(kA, commit_of(answer, 12), 20, kDepth).step, CommitStep::kRestart);
}

TEST_F(ViewFollowerTest, IgnoresAnExecutedCommit) {
  const auto commit = commit_of(accept(kA, query({kB}), 5), 5);
  ASSERT_EQ(follower_.on_commit(kA, commit, 5, kDepth).step, CommitStep::kRestart);
  EXPECT_EQ(follower_.on_commit(kA, commit, 500, kDepth).step, CommitStep::kIgnore)
      << "even far beyond its base";
  EXPECT_EQ(follower_.base(), 5u);
}

// The answer to the second query says from which chunk on this rank can resend. If it executed the first
// commit, it would continue and overwrite results that the second commit may need.
TEST_F(ViewFollowerTest, IgnoresACommitOfAnEarlierQuery) {
  const auto first = accept(kA, query({kB}), 5);
  const auto second = accept(kA, query({kB, kC}), 5);
  EXPECT_EQ(follower_.on_commit(kA, commit_of(first, 5), 5, kDepth).step, CommitStep::kIgnore);
  EXPECT_TRUE(follower_.is_stopped());
  EXPECT_EQ(follower_.on_commit(kA, commit_of(second, 5), 5, kDepth).step, CommitStep::kRestart);
  EXPECT_EQ(follower_.on_commit(kA, commit_of(first, 5), 5, kDepth).step, CommitStep::kIgnore)
      << "lower version";
}

// A and B suspect each other, and both send a query with the same version.
TEST_F(ViewFollowerTest, TwoArbitersConverge) {
  const auto answer = accept(kA, query({kB}), 7);
  EXPECT_EQ(follower_.on_query(kB, query({kA})).step, QueryStep::kSendKnown);
  EXPECT_THAT(follower_.known_changes().removed, ElementsAre(kB, kA));
  // A committed before it learned of the other query. The given answer stays valid.
  EXPECT_EQ(follower_.on_commit(kA, commit_of(answer, 6), 7, kDepth).step, CommitStep::kRestart);
  EXPECT_EQ(follower_.view().version, 1);

  const auto last = follower_.on_query(kC, query({kA, kB}));
  EXPECT_EQ(last.step, QueryStep::kAccept);
  EXPECT_THAT(last.close, ElementsAre(kA)) << "B was closed before";
  const auto settled = follower_.answer(9);
  ASSERT_TRUE(settled.has_value());
  EXPECT_EQ(follower_.on_commit(kC, commit_of(*settled, 9), 9, kDepth).step, CommitStep::kRestart);
  EXPECT_EQ(follower_.view().version, 2);
}

TEST_F(ViewFollowerTest, TwoArbitersWithoutACommit) {
  const auto answer = accept(kB, query({kA}), 7);
  EXPECT_EQ(follower_.on_query(kA, query({kB})).step, QueryStep::kSendKnown);
  const auto settled = accept(kC, query({kA, kB}), 7);
  EXPECT_EQ(follower_.on_commit(kB, commit_of(answer, 7), 7, kDepth).step, CommitStep::kIgnore);
  EXPECT_EQ(follower_.on_commit(kC, commit_of(settled, 7), 7, kDepth).step, CommitStep::kRestart);
}

TEST_F(ViewFollowerTest, FailsWhenNoReducerIsLeft) {
  for (const uint64_t id : {kA, kB}) follower_.suspect(id);
  EXPECT_FALSE(follower_.fatal_error().has_value());
  follower_.suspect(kC);
  ASSERT_TRUE(follower_.fatal_error().has_value());
  EXPECT_EQ(follower_.fatal_error()->code, Errc::kReducerLost);
}

TEST_F(ViewFollowerTest, FailsWhenThereAreMoreChangesThanAMessageHolds) {
  for (uint64_t id = 1000; id < 1000 + wire::kMaxViewChange; ++id) follower_.suspect(id);
  EXPECT_FALSE(follower_.fatal_error().has_value());
  follower_.suspect(999);
  ASSERT_TRUE(follower_.fatal_error().has_value());
  EXPECT_EQ(follower_.fatal_error()->code, Errc::kTooMany);
}

TEST_F(ViewFollowerTest, OmitsAddressesThatDoNotFit) {
  const std::string host(200, 'h');
  for (uint64_t id = 1000; id < 1100; ++id) follower_.add(id, {.host = host, .port = 7470, .weight = 1});
  const auto known = follower_.known_changes();
  EXPECT_LE(known.addresses.size(), wire::kMaxAddresses);
  EXPECT_EQ(std::ranges::count(known.addresses, ','), 99);
  auto q = query({});
  q.added = known.added;
  q.addresses = known.addresses;
  q.version = 100;
  ViewFollower other(first_view());
  const auto result = other.on_query(kA, q);
  ASSERT_EQ(result.step, QueryStep::kAccept) << result.violation.text;
  EXPECT_TRUE(result.join.front().address.has_value());
  EXPECT_FALSE(result.join.back().address.has_value());
}

// A session that goes on without its pool adds all reducers again after each loss.
TEST_F(ViewFollowerTest, SendsTheAddressOfAReducerAfterManyWereRemoved) {
  for (uint64_t id = 1000; id < 1400; ++id) {
    follower_.add(id, {.host = "10.0.0.9", .port = 7470, .weight = 1});
    follower_.suspect(id);
  }
  follower_.add(1400, {.host = "10.0.0.9", .port = 7470, .weight = 1});
  EXPECT_THAT(follower_.known_changes().addresses, ::testing::EndsWith(",10.0.0.9:7470"));
}

}  // namespace
}  // namespace sluice::engine
