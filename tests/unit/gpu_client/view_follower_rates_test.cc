// View changes of sessions with co-located reducers.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "gpu_client/engine/membership/view_follower.h"

namespace sluice::engine {
namespace {

using CommitStep = ViewFollower::Commit::Step;

constexpr uint64_t kDedicated = 50, kHost0 = 40, kHost1 = 30, kAdded = 20;
constexpr uint64_t kGbit = 1'000'000'000;

wire::View co_located_view() {
  wire::View view;
  view.window_bytes = 256 * kKiB;
  view.slot_bytes = 16 * kKiB;
  view.worker_rates = {10 * kGbit, 10 * kGbit, 5 * kGbit};
  view.reducers = {{.id = kDedicated, .lanes = 2, .rate = 8 * kGbit},
                   {.id = kHost0, .host_rank = 0},
                   {.id = kHost1, .host_rank = 1}};
  return view;
}

wire::ViewQuery change_query(uint16_t version, std::vector<uint64_t> removed, std::vector<uint64_t> added) {
  wire::ViewQuery q;
  q.version = version;
  q.removed = std::move(removed);
  q.added = std::move(added);
  return q;
}

// Answers and executes the accepted query.
void change_view(ViewFollower& follower, uint64_t arbiter) {
  const auto answer = follower.answer(0);
  ASSERT_TRUE(answer.has_value());
  const wire::ViewCommit commit{.version = answer->version, .view_hash = answer->view_hash, .base_chunk = 0};
  ASSERT_EQ(follower.on_commit(arbiter, commit, 0, 8).step, CommitStep::kRestart);
}

TEST(ViewFollowerRates, RemainAfterALossAndGiveTheSplitOfTheRest) {
  ViewFollower follower(co_located_view());
  static_cast<void>(follower.on_query(kHost0, change_query(1, {kDedicated}, {})));
  change_view(follower, kHost0);
  wire::View expected = co_located_view();
  expected.version = 1;
  expected.reducers[0].alive = false;
  EXPECT_EQ(follower.view_hash(), wire::view_hash(expected));
  EXPECT_EQ(wire::placement_table(follower.view()), wire::placement_table(expected));
  EXPECT_EQ(wire::reducer_shares(follower.view()), (std::vector<double>{0, 0.5, 0.5}));
  EXPECT_FALSE(follower.fatal_error().has_value()) << "the session goes on without a dedicated reducer";
}

TEST(ViewFollowerRates, IncludeTheRateOfAnAddedReducer) {
  ViewFollower follower(co_located_view());
  static_cast<void>(follower.on_query(kDedicated, change_query(1, {}, {kAdded})));
  ASSERT_TRUE(follower.set_joined(kAdded, 4, 6 * kGbit));
  change_view(follower, kDedicated);
  wire::View expected = co_located_view();
  expected.version = 1;
  expected.reducers.push_back({.id = kAdded, .lanes = 4, .rate = 6 * kGbit});
  EXPECT_EQ(follower.view_hash(), wire::view_hash(expected));
  EXPECT_EQ(wire::placement_table(follower.view()), wire::placement_table(expected));
  EXPECT_GT(wire::reducer_shares(follower.view())[3], 0);
}

TEST(ViewFollowerRates, RejectARateThatNoLinkHas) {
  for (const uint64_t rate : {uint64_t{1}, wire::kMaxLinkRate + 1, ~uint64_t{0}}) {
    ViewFollower follower(co_located_view());
    static_cast<void>(follower.on_query(kDedicated, change_query(1, {}, {kAdded})));
    EXPECT_FALSE(follower.set_joined(kAdded, 1, rate)) << rate;
  }
  wire::View plain = co_located_view();
  plain.worker_rates.clear();
  ViewFollower follower(plain);
  static_cast<void>(follower.on_query(kDedicated, change_query(1, {}, {kAdded})));
  EXPECT_TRUE(follower.set_joined(kAdded, 1, 1)) << "a session without co-located reducers ignores rates";
}

// A rank that could not reach an added reducer does not know its rate, yet all hashes must be equal.
TEST(ViewFollowerRates, DoNotCountOfARemovedAddition) {
  ViewFollower joined(co_located_view());
  ViewFollower other(co_located_view());
  static_cast<void>(joined.on_query(kDedicated, change_query(1, {}, {kAdded})));
  ASSERT_TRUE(joined.set_joined(kAdded, 4, 6 * kGbit));
  ASSERT_TRUE(joined.answer(0).has_value());
  for (ViewFollower* f : {&joined, &other})
    static_cast<void>(f->on_query(kDedicated, change_query(2, {kAdded}, {kAdded})));
  const auto a = joined.answer(0);
  const auto b = other.answer(0);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->view_hash, b->view_hash);
}

TEST(ViewFollowerRates, FollowAChangedLink) {
  ViewFollower follower(co_located_view());
  ASSERT_TRUE(follower.change_rate(0, 2 * kGbit));
  EXPECT_EQ(follower.history().version(), 1);
  EXPECT_EQ(follower.view().worker_rates, co_located_view().worker_rates) << "until the view changes";
  for (const wire::RateChanges& m : wire::rate_messages(follower.history().rate_changes()))
    EXPECT_FALSE(follower.on_rate_changes(kDedicated, m).has_value());
  const auto q = follower.on_query(kDedicated, change_query(1, {}, {}));
  EXPECT_EQ(q.step, ViewFollower::Query::Step::kAccept) << q.violation.text;
  EXPECT_TRUE(q.close.empty() && q.join.empty());
  change_view(follower, kDedicated);
  wire::View expected = co_located_view();
  expected.version = 1;
  expected.worker_rates[0] = 2 * kGbit;
  EXPECT_EQ(follower.view_hash(), wire::view_hash(expected));
  EXPECT_EQ(wire::placement_table(follower.view()), wire::placement_table(expected));
  ASSERT_TRUE(follower.change_rate(0, 3 * kGbit));
  EXPECT_EQ(follower.history().rate_changes().front().sequence, 2);
}

// A rank reports its own link only, so it does not wait until the arbiter knows the newest rate.
TEST(ViewFollowerRates, DoNotDelayAnotherViewChange) {
  ViewFollower follower(co_located_view());
  ASSERT_TRUE(follower.change_rate(1, kGbit));
  EXPECT_EQ(follower.on_query(kHost0, change_query(1, {kDedicated}, {})).step,
            ViewFollower::Query::Step::kAccept);
  change_view(follower, kHost0);
  EXPECT_EQ(follower.view().worker_rates, co_located_view().worker_rates);
  EXPECT_EQ(follower.history().rate_changes().size(), 1u) << "still to be proposed";
  // An answered rate must be in every later query.
  static_cast<void>(
      follower.on_rate_changes(kHost0, wire::rate_messages(follower.history().rate_changes()).front()));
  EXPECT_EQ(follower.on_query(kHost0, change_query(2, {kDedicated}, {})).step,
            ViewFollower::Query::Step::kAccept);
  change_view(follower, kHost0);
  EXPECT_EQ(follower.on_query(kHost1, change_query(2, {kHost0, kDedicated}, {})).step,
            ViewFollower::Query::Step::kSendKnown);
}

TEST(ViewFollowerRates, RefuseChangesThatNoRankCanSend) {
  const wire::RateChanges valid{.ranks = {2}, .sequences = {1}, .rates = {kGbit}};
  ViewFollower follower(co_located_view());
  EXPECT_FALSE(follower.on_rate_changes(kHost1, valid).has_value());
  EXPECT_EQ(follower.on_query(kDedicated, change_query(1, {}, {})).step,
            ViewFollower::Query::Step::kViolation)
      << "another reducer offered the rate";
  wire::RateChanges unknown_rank = valid;
  unknown_rank.ranks[0] = 3;
  EXPECT_TRUE(follower.on_rate_changes(kDedicated, unknown_rank).has_value());
  wire::View plain = co_located_view();
  plain.worker_rates.clear();
  EXPECT_TRUE(ViewFollower(plain).on_rate_changes(kDedicated, valid).has_value())
      << "a session without link rates";
}

TEST(ViewFollowerRates, StopBeforeVersionsAreExhausted) {
  ViewFollower follower(co_located_view());
  int changes = 0;
  while (changes < 70'000 && follower.change_rate(0, kGbit)) ++changes;
  EXPECT_EQ(changes, 60'000);
  EXPECT_FALSE(follower.change_rate(1, kGbit));
}

}  // namespace
}  // namespace sluice::engine
