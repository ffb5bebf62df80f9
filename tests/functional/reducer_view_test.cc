// View changes on the reducer's control side: proposals, commits, repeated messages; a reducer that is
// removed from a running session, and one that is added.
#include "tests/functional/reducer_recovery_fixture.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

constexpr uint64_t kThird = 8;  // another reducer that does not exist
constexpr uint64_t kHash = 4711;

class ReducerViewTest : public ReducerRecoveryTest {
 protected:
  static reducer::ReducerOptions long_timeouts() {
    auto o = ReducerRecoveryTest::long_timeouts();
    o.drain_timeout = 60 * kSecond;
    return o;
  }
  // A session with two more reducers.
  static Shape fault_tolerant(uint32_t ranks) {
    Shape shape = ReducerRecoveryTest::fault_tolerant(ranks);
    shape.reducers_after = {kOtherReducer, kThird};
    return shape;
  }
  // A running session whose ranks add this reducer behind these.
  static Shape running(uint32_t ranks, std::vector<uint64_t> reducers_before) {
    Shape shape = ReducerRecoveryTest::fault_tolerant(ranks);
    shape.reducers_before = std::move(reducers_before);
    shape.incarnation = 99;
    return shape;
  }
  static void suspect(ScriptedMember& rank, uint64_t reducer, Errc code = Errc::kReducerLost) {
    rank.control.send(wire::Suspect{.reducer = reducer, .code = code}, rank.joined.handle);
  }
  static void report(ScriptedMember& rank, wire::MembershipChange change) {
    rank.control.send(wire::ViewKnown{std::move(change)}, rank.joined.handle);
  }
  static void answer(ScriptedMember& rank, uint16_t version, uint64_t chunk, uint64_t hash = kHash) {
    rank.control.send(
        wire::ViewAnswer{.version = version, .view_hash = hash, .first_unfinished_chunk = chunk},
        rank.joined.handle);
  }
  [[nodiscard]] bool eventually_at_version(uint16_t version) const {
    return eventually([=](const auto& j) { return j["session_list"][0]["roster_version"] == version; });
  }
};

TEST_F(ReducerViewTest, QueriesEveryRankAndCommitsTheSmallestAnswer) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(3));
  suspect(ranks[1], kOtherReducer);
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    EXPECT_EQ(query.version, 1);
    EXPECT_EQ(query.removed, std::vector<uint64_t>{kOtherReducer});
    EXPECT_TRUE(query.added.empty());
  }
  suspect(ranks[2], kOtherReducer);  // already reported
  answer(ranks[0], 1, 12);
  answer(ranks[1], 1, 10);
  EXPECT_EQ(status()["view_changes"]["committed"], 0);
  answer(ranks[2], 1, 11);
  for (auto& r : ranks) {
    const auto commit = r.control.expect<wire::ViewCommit>();
    EXPECT_EQ(commit.version, 1);
    EXPECT_EQ(commit.view_hash, kHash);
    EXPECT_EQ(commit.base_chunk, 10u);
  }
  EXPECT_EQ(status()["view_changes"], nlohmann::json({{"proposed", 1}, {"committed", 1}}));
  EXPECT_EQ(status()["session_list"][0]["roster_version"], 1);
}

TEST_F(ReducerViewTest, ProposesAgainWhenMoreChangesAreReported) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  suspect(ranks[0], kOtherReducer);
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[0], 1, 5);
  report(ranks[1], {.removed = {kOtherReducer}, .added = {99}, .addresses = "10.0.0.9:7470*1"});
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    EXPECT_EQ(query.version, 2);
    EXPECT_EQ(query.added, std::vector<uint64_t>{99});
    EXPECT_EQ(query.addresses, "10.0.0.9:7470*1");
  }
  answer(ranks[1], 1, 4);  // of the previous version: ignored
  answer(ranks[1], 2, 7);
  answer(ranks[0], 2, 6);
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 6u);
}

TEST_F(ReducerViewTest, SendsChangedRatesBeforeEachQuery) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  ranks[1].control.send(wire::RateChanges{.ranks = {1}, .sequences = {3}, .rates = {50'000'000}},
                        ranks[1].joined.handle);
  for (auto& r : ranks) {
    EXPECT_EQ(r.control.expect<wire::RateChanges>().rates, std::vector<uint64_t>{50'000'000});
    const auto query = r.control.expect<wire::ViewQuery>();
    EXPECT_EQ(query.version, 3);
    EXPECT_TRUE(query.removed.empty() && query.added.empty());
  }
  ranks[0].control.close();
  EXPECT_TRUE(eventually_absent(1));
  (void)ranks[0].resume();
  EXPECT_EQ(ranks[0].control.expect<wire::RateChanges>().ranks, std::vector<uint32_t>{1});
  EXPECT_EQ(ranks[0].control.expect<wire::ViewQuery>().version, 3);
  for (auto& r : ranks) answer(r, 3, 2);
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().version, 3);
  ranks[1].control.send(wire::RateChanges{.ranks = {2}, .sequences = {1}, .rates = {50'000'000}},
                        ranks[1].joined.handle);
  EXPECT_TRUE(eventually_absent(1)) << "no rank of the session";
}

TEST_F(ReducerViewTest, RepeatsProposalsAndCommitsToAResumedRank) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  ranks[1].control.close();
  suspect(ranks[0], kOtherReducer);
  (void)ranks[0].control.expect<wire::ViewQuery>();
  (void)ranks[1].resume();
  EXPECT_EQ(ranks[1].control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[0], 1, 3);
  // A rank that has answered is not queried again.
  (void)ranks[0].resume();
  ranks[1].control.close();
  EXPECT_TRUE(eventually_absent(1));
  (void)ranks[1].resume();
  EXPECT_EQ(ranks[1].control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[1], 1, 2);
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 2u);
  for (auto& r : ranks) {
    (void)r.resume();
    EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 2u);
  }
  // First the last commit, then the open proposal.
  suspect(ranks[0], kThird);
  for (auto& r : ranks) {
    EXPECT_EQ(r.control.expect<wire::ViewQuery>().version, 2);
    (void)r.resume();
    EXPECT_EQ(r.control.expect<wire::ViewCommit>().version, 1);
    EXPECT_EQ(r.control.expect<wire::ViewQuery>().version, 2);
  }
}

TEST_F(ReducerViewTest, EndsASessionWhoseRanksDisagreeOnTheView) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  suspect(ranks[0], kOtherReducer);
  for (auto& r : ranks) (void)r.control.expect<wire::ViewQuery>();
  answer(ranks[0], 1, 5);
  EXPECT_TRUE(eventually_at_version(1));
  answer(ranks[1], 1, 5, kHash + 1);
  for (auto& r : ranks) {
    const auto abort = r.control.expect<wire::Abort>();
    EXPECT_EQ(abort.code, Errc::kMismatch);
    EXPECT_THAT(abort.text, AllOf(HasSubstr("view 1"), HasSubstr("rank 0"), HasSubstr("rank 1")));
  }
}

TEST_F(ReducerViewTest, EndsASessionWithoutReducers) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  suspect(ranks[0], kOtherReducer);
  suspect(ranks[0], kThird);
  suspect(ranks[0], reducer->id());
  (void)ranks[1].control.expect<wire::ViewQuery>();
  (void)ranks[1].control.expect<wire::ViewQuery>();
  EXPECT_EQ(ranks[1].control.expect<wire::Abort>().code, Errc::kReducerLost);
}

TEST_F(ReducerViewTest, NeedsNoAnswerOfRanksThatLeft) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  ranks[1].leave();
  suspect(ranks[0], kOtherReducer);
  EXPECT_EQ(ranks[0].control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[0], 1, 5);
  EXPECT_EQ(ranks[0].control.expect<wire::ViewCommit>().base_chunk, 5u);
}

TEST_F(ReducerViewTest, ClosesAConnectionThatSendsAMalformedHistory) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(1));
  report(ranks[0], {.added = {9}, .addresses = "a,b"});
  EXPECT_TRUE(ranks[0].control.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "bad_field"));
  EXPECT_EQ(status()["sessions"]["open"], 1);
}

TEST_F(ReducerViewTest, ARemovedReducerReleasesTheSession) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  suspect(ranks[0], reducer->id());
  EXPECT_TRUE(eventually_at_version(1));
  disconnect(ranks[0]);
  EXPECT_TRUE(eventually_absent(1));
  ranks[1].lanes.clear();
  EXPECT_TRUE(eventually_absent(2));
  EXPECT_EQ(status()["sessions"]["open"], 1) << "one connection is left";
  ranks[1].control.close();
  EXPECT_TRUE(eventually_empty());
  EXPECT_EQ(status()["sessions"]["moved"], 1);
  EXPECT_EQ(status()["sessions"]["failed"], 0);
}

// A session never takes a removed id back, but the process may have been suspended, or removed from the list
// and added again.
TEST_F(ReducerViewTest, HasANewIdForASessionThatRemovedIt) {
  start(long_timeouts());
  const uint64_t first = reducer->id();
  auto ranks = start_session(port(), fault_tolerant(2));
  EXPECT_EQ(id_for(1), first);
  suspect(ranks[0], first);
  EXPECT_TRUE(eventually_at_version(1));
  EXPECT_EQ(id_for(1), first) << "the ranks are still connected";
  for (auto& r : ranks) disconnect(r);
  EXPECT_TRUE(eventually_empty());
  const uint64_t second = id_for(1);
  EXPECT_NE(second, first);
  EXPECT_EQ(id_for(1), second);
  EXPECT_EQ(id_for(2), first) << "other sessions have not removed it";

  // The session adds the reducer again under the new id.
  auto back = start_session(port(), running(1, {kOtherReducer}));
  report(back[0], {.removed = {first}, .added = {second}, .confirmed = {second}});
  suspect(back[0], kOtherReducer);  // leaves this reducer, which becomes the arbiter
  EXPECT_EQ(back[0].control.expect<wire::ViewQuery>().added, std::vector<uint64_t>{second});
}

TEST_F(ReducerViewTest, DrainMovesSessionsToTheOtherReducers) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  reducer->drain();
  for (auto& r : ranks) {
    const auto notice = r.control.expect<wire::DrainNotice>();
    EXPECT_GT(notice.deadline_ms, 0u);
    EXPECT_LE(notice.deadline_ms, 60'000u);
  }
  (void)ranks[0].resume();
  EXPECT_GT(ranks[0].control.expect<wire::DrainNotice>().deadline_ms, 0u);
  for (auto& r : ranks) suspect(r, reducer->id(), Errc::kDraining);
  EXPECT_TRUE(eventually_at_version(1));
  expect_sums(ranks, 0);  // the old view runs until the new one is in force
  for (auto& r : ranks) disconnect(r);
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrained);
  EXPECT_EQ(status()["sessions"]["moved"], 1);
  EXPECT_EQ(status()["sessions"]["failed"], 0);
}

TEST_F(ReducerViewTest, RemovesNoOtherDrainingReducerWhileItDrains) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  reducer->drain();
  for (auto& r : ranks) (void)r.control.expect<wire::DrainNotice>();
  suspect(ranks[0], kThird, Errc::kDraining);
  suspect(ranks[0], kOtherReducer);  // but it removes a lost reducer
  EXPECT_EQ(ranks[0].control.expect<wire::ViewQuery>().removed, std::vector<uint64_t>{kOtherReducer});
}

TEST_F(ReducerViewTest, DrainServesASessionWithoutOtherReducersToItsEnd) {
  start(long_timeouts());
  auto ranks = start_session(port(), ReducerRecoveryTest::fault_tolerant(1));
  reducer->drain();
  EXPECT_TRUE(eventually([](const auto& j) { return j["draining"] == true; }));
  expect_sums(ranks, 0);
  // No DRAIN_NOTICE arrives in between.
  for (int beats = 0; beats < 3; ++beats) (void)ranks[0].control.expect<wire::Heartbeat>();
  ranks[0].leave();
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrained);
  EXPECT_EQ(status()["sessions"]["completed"], 1);
}

TEST_F(ReducerViewTest, AnnouncesTheDrainOnceAnotherReducerIsAdded) {
  start(long_timeouts());
  auto ranks = start_session(port(), ReducerRecoveryTest::fault_tolerant(1));
  reducer->drain();
  EXPECT_TRUE(eventually([](const auto& j) { return j["draining"] == true; }));
  report(ranks[0], {.added = {99}});
  (void)ranks[0].control.expect<wire::ViewQuery>();
  EXPECT_GT(ranks[0].control.expect<wire::DrainNotice>().deadline_ms, 0u);
}

TEST_F(ReducerViewTest, StopClosesConnectionsWithoutAbortIfOtherReducersRemain) {
  auto options = long_timeouts();
  options.drain_timeout = 300 * kMillisecond;
  start(options);
  auto ranks = start_session(port(), fault_tolerant(2));
  reducer->drain();
  for (auto& r : ranks) {
    (void)r.control.expect<wire::DrainNotice>();
    std::optional<ReceivedFrame> last;
    do last = r.control.receive();
    while (last && last->header.type == wire::FrameType::kHeartbeat);
    EXPECT_FALSE(last) << wire::to_string(last->header.type);
    EXPECT_FALSE(r.lanes[0].receive());
  }
  for (auto& r : ranks) disconnect(r);
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrainTimeout);
}

TEST_F(ReducerViewTest, JoinsARunningSession) {
  start(long_timeouts());
  // The first view was kOtherReducer and kThird; kOtherReducer has been removed since.
  auto ranks = start_session(port(), running(2, {kOtherReducer, kThird}));
  EXPECT_TRUE(eventually_active());
  suspect(ranks[0], kThird);  // the only other one
  EXPECT_TRUE(eventually_at_version(1));
  EXPECT_EQ(status()["view_changes"]["proposed"], 0) << "it does not know the first view yet";
  report(ranks[1], {.removed = {kOtherReducer}, .added = {reducer->id()}, .confirmed = {reducer->id()}});
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    EXPECT_EQ(query.version, 4);
    EXPECT_EQ(query.removed, (std::vector<uint64_t>{kOtherReducer, kThird}));
    EXPECT_EQ(query.added, std::vector<uint64_t>{reducer->id()});
    answer(r, 4, 20);
  }
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 20u);
}

TEST_F(ReducerViewTest, JoinsWhileTheViewChanges) {
  start(long_timeouts());
  Shape shape = running(2, {kOtherReducer});
  ScriptedMember first = join(shape);
  // The second rank joins in a later view: another hash, another list.
  shape.rank = 1;
  shape.view_hash = 43;
  shape.reducers_after = {UINT64_MAX};
  ScriptedMember second = join(shape);
  first.attach();
  second.attach();
  // A rank with another incarnation, or with none, is refused.
  for (const uint64_t incarnation : {uint64_t{0}, uint64_t{98}}) {
    Shape other = shape;
    other.session = session_id(2);
    other.incarnation = 99;
    ScriptedMember member = join(other);
    other.rank = 0;
    other.incarnation = incarnation;
    EXPECT_EQ(refusal(other).code, Errc::kMismatch);
    EXPECT_FALSE(member.control.receive()) << "ABORT would end the session on the other reducers";
  }
  for (auto* r : {&first, &second}) r->commit_as(99);
  EXPECT_TRUE(eventually_active());
  EXPECT_EQ(status()["closed"].value("bad_field", 0), 0);
}

TEST_F(ReducerViewTest, DoesNotWaitForRanksThatLeftBeforeTheJoin) {
  auto options = long_timeouts();
  options.absence_timeout = 100 * kMillisecond;
  start(options);
  Shape shape = running(2, {kOtherReducer});
  ScriptedMember rank = join(shape);
  rank.attach();
  rank.commit_as(99);
  report(rank, {.added = {reducer->id()}, .confirmed = {reducer->id()}});
  suspect(rank, kOtherReducer);
  EXPECT_EQ(rank.control.expect<wire::ViewQuery>().version, 3);
  answer(rank, 3, 20);
  EXPECT_EQ(rank.control.expect<wire::ViewCommit>().base_chunk, 20u);
  rank.leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerViewTest, CountsNoVotesOfARunningSession) {
  auto options = long_timeouts();
  options.join_timeout = 100 * kMillisecond;
  start(options);
  Shape shape = fault_tolerant(1);
  shape.incarnation = 99;
  ScriptedMember rank = join(shape);
  rank.vote_yes();
  EXPECT_TRUE(rank.control.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "unexpected_message"));
}

}  // namespace
}  // namespace sluice::test
