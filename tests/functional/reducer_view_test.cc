// View changes on the reducer's control side: proposals, commits, repeated messages; a reducer that is
// removed from a running session, and one that is added.
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

constexpr uint64_t kOther = 7;  // reducers that do not exist
constexpr uint64_t kThird = 8;
constexpr uint64_t kHash = 4711;

class ReducerViewTest : public ReducerTest {
 protected:
  static reducer::ReducerOptions long_timeouts() {
    auto o = short_deadlines();
    o.peer_timeout = 60 * kSecond;
    o.absence_timeout = 60 * kSecond;
    o.drain_timeout = 60 * kSecond;
    return o;
  }
  // A session with two more reducers.
  static Shape fault_tolerant(uint32_t ranks) {
    return {.session = session_id(1),
            .ranks = ranks,
            .reducers_after = {kOther, kThird},
            .features = wire::kFaultToleranceFeatures};
  }
  static void suspect(ScriptedMember& rank, uint64_t reducer, Errc code = Errc::kReducerLost) {
    rank.control.send(wire::Suspect{.reducer = reducer, .code = code}, rank.joined.handle);
  }
  static void answer(ScriptedMember& rank, uint16_t version, uint64_t chunk, uint64_t hash = kHash) {
    rank.control.send(
        wire::ViewAnswer{.version = version, .view_hash = hash, .first_unfinished_chunk = chunk},
        rank.joined.handle);
  }
  static void close_all(std::vector<ScriptedMember>& ranks) {
    for (auto& r : ranks) {
      r.lanes.clear();
      r.control.close();
    }
  }
  [[nodiscard]] bool eventually_at_version(uint16_t version) const {
    return eventually([=](const auto& j) { return j["session_list"][0]["roster_version"] == version; });
  }
};

TEST_F(ReducerViewTest, QueriesEveryRankAndCommitsTheSmallestAnswer) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(3));
  suspect(ranks[1], kOther);
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    EXPECT_EQ(query.version, 1);
    EXPECT_EQ(query.removed, std::vector<uint64_t>{kOther});
    EXPECT_TRUE(query.added.empty());
  }
  suspect(ranks[2], kOther);  // already reported
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
  suspect(ranks[0], kOther);
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[0], 1, 5);
  wire::ViewKnown known;
  known.removed = {kOther};
  known.added = {99};
  known.addresses = "10.0.0.9:7470*1";
  ranks[1].control.send(known, ranks[1].joined.handle);
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    EXPECT_EQ(query.version, 2);
    EXPECT_EQ(query.added, std::vector<uint64_t>{99});
    EXPECT_EQ(query.addresses, known.addresses);
  }
  answer(ranks[1], 1, 4);  // of the previous version: ignored
  answer(ranks[1], 2, 7);
  answer(ranks[0], 2, 6);
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 6u);
}

TEST_F(ReducerViewTest, RepeatsProposalsAndCommitsToAResumedRank) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  ranks[1].control.close();
  suspect(ranks[0], kOther);
  (void)ranks[0].control.expect<wire::ViewQuery>();
  (void)ranks[1].resume();
  EXPECT_EQ(ranks[1].control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[0], 1, 3);
  // A rank that has answered is not queried again.
  (void)ranks[0].resume();
  ranks[1].control.close();
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["absent_ranks"] == 1; }));
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
  suspect(ranks[0], kOther);
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
  suspect(ranks[0], kOther);
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
  suspect(ranks[0], kOther);
  EXPECT_EQ(ranks[0].control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[0], 1, 5);
  EXPECT_EQ(ranks[0].control.expect<wire::ViewCommit>().base_chunk, 5u);
}

TEST_F(ReducerViewTest, ClosesAConnectionThatSendsAMalformedHistory) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(1));
  wire::ViewKnown known;
  known.added = {9};
  known.addresses = "a,b";
  ranks[0].control.send(known, ranks[0].joined.handle);
  EXPECT_TRUE(ranks[0].control.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "bad_field"));
  EXPECT_EQ(status()["sessions"]["open"], 1);
}

TEST_F(ReducerViewTest, ARemovedReducerReleasesTheSession) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  suspect(ranks[0], reducer->id());
  EXPECT_TRUE(eventually_at_version(1));
  ranks[0].lanes.clear();
  ranks[0].control.close();
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["absent_ranks"] == 1; }));
  ranks[1].lanes.clear();
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["absent_ranks"] == 2; }));
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
  const auto id_for = [this](uint8_t session) {
    ScriptedConnection c(port());
    wire::Hello hello;
    hello.session = session_id(session);
    hello.purpose = wire::Purpose::kStatus;
    return c.handshake(hello).reducer;
  };
  const uint64_t first = reducer->id();
  auto ranks = start_session(port(), fault_tolerant(2));
  EXPECT_EQ(id_for(1), first);
  suspect(ranks[0], first);
  EXPECT_TRUE(eventually_at_version(1));
  EXPECT_EQ(id_for(1), first) << "the ranks are still connected";
  close_all(ranks);
  EXPECT_TRUE(eventually_empty());
  const uint64_t second = id_for(1);
  EXPECT_NE(second, first);
  EXPECT_EQ(id_for(1), second);
  EXPECT_EQ(id_for(2), first) << "other sessions have not removed it";

  // The session adds the reducer again under the new id.
  Shape again = fault_tolerant(1);
  again.reducers_after = {};
  again.reducers_before = {kOther};
  again.incarnation = 99;
  auto back = start_session(port(), again);
  wire::ViewKnown known;
  known.removed = {first};
  known.added = known.confirmed = {second};
  back[0].control.send(known, back[0].joined.handle);
  suspect(back[0], kOther);  // leaves this reducer, which becomes the arbiter
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
  close_all(ranks);
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
  suspect(ranks[0], kOther);  // but it removes a lost reducer
  EXPECT_EQ(ranks[0].control.expect<wire::ViewQuery>().removed, std::vector<uint64_t>{kOther});
}

TEST_F(ReducerViewTest, DrainServesASessionWithoutOtherReducersToItsEnd) {
  start(long_timeouts());
  Shape alone = fault_tolerant(1);
  alone.reducers_after = {};
  auto ranks = start_session(port(), alone);
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
  Shape alone = fault_tolerant(1);
  alone.reducers_after = {};
  auto ranks = start_session(port(), alone);
  reducer->drain();
  EXPECT_TRUE(eventually([](const auto& j) { return j["draining"] == true; }));
  wire::ViewKnown known;
  known.added = {99};
  ranks[0].control.send(known, ranks[0].joined.handle);
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
  close_all(ranks);
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrainTimeout);
}

TEST_F(ReducerViewTest, JoinsARunningSession) {
  start(long_timeouts());
  // The first view was kOther and kThird; kOther has been removed since.
  Shape shape = fault_tolerant(2);
  shape.reducers_after = {};
  shape.reducers_before = {kOther, kThird};
  shape.incarnation = 99;
  auto ranks = start_session(port(), shape);
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["state"] == "active"; }));
  suspect(ranks[0], kThird);  // the only other one
  EXPECT_TRUE(eventually_at_version(1));
  EXPECT_EQ(status()["view_changes"]["proposed"], 0) << "it does not know the first view yet";
  wire::ViewKnown known;
  known.removed = {kOther};
  known.added = known.confirmed = {reducer->id()};
  ranks[1].control.send(known, ranks[1].joined.handle);
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    EXPECT_EQ(query.version, 4);
    EXPECT_EQ(query.removed, (std::vector<uint64_t>{kOther, kThird}));
    EXPECT_EQ(query.added, std::vector<uint64_t>{reducer->id()});
    answer(r, 4, 20);
  }
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 20u);
}

TEST_F(ReducerViewTest, JoinsWhileTheViewChanges) {
  start(long_timeouts());
  Shape shape = fault_tolerant(2);
  shape.reducers_after = {};
  shape.reducers_before = {kOther};
  shape.incarnation = 99;
  ScriptedMember first(port(), shape);
  first.join();
  first.expect_joined();
  // The second rank joins in a later view: another hash, another list.
  shape.rank = 1;
  shape.view_hash = 43;
  shape.reducers_after = {UINT64_MAX};
  ScriptedMember second(port(), shape);
  second.join();
  second.expect_joined();
  first.attach();
  second.attach();
  // A rank with another incarnation, or with none, is refused.
  for (const uint64_t incarnation : {uint64_t{0}, uint64_t{98}}) {
    Shape other = shape;
    other.session = session_id(2);
    other.incarnation = 99;
    ScriptedMember member(port(), other);
    member.join();
    member.expect_joined();
    other.rank = 0;
    other.incarnation = incarnation;
    ScriptedMember stranger(port(), other);
    stranger.join();
    EXPECT_EQ(stranger.control.expect<wire::Refused>().code, Errc::kMismatch);
    EXPECT_FALSE(member.control.receive()) << "ABORT would end the session on the other reducers";
  }
  for (auto* r : {&first, &second}) r->commit_as(99);
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["state"] == "active"; }));
  EXPECT_EQ(status()["closed"].value("bad_field", 0), 0);
}

TEST_F(ReducerViewTest, DoesNotWaitForRanksThatLeftBeforeTheJoin) {
  auto options = long_timeouts();
  options.absence_timeout = 100 * kMillisecond;
  start(options);
  Shape shape = fault_tolerant(2);
  shape.reducers_after = {};
  shape.reducers_before = {kOther};
  shape.incarnation = 99;
  ScriptedMember rank(port(), shape);
  rank.join();
  rank.expect_joined();
  rank.attach();
  rank.commit_as(99);
  wire::ViewKnown known;
  known.added = known.confirmed = {reducer->id()};
  rank.control.send(known, rank.joined.handle);
  suspect(rank, kOther);
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
  ScriptedMember rank(port(), shape);
  rank.join();
  rank.expect_joined();
  rank.vote_yes();
  EXPECT_TRUE(rank.control.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "unexpected_message"));
}

}  // namespace
}  // namespace sluice::test
