// Views that change, at the reducer's control side: who is asked, what is committed, what is said again; a
// reducer that goes, and one that comes to a session that runs.
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

constexpr uint64_t kOther = 7;  // reducers that are not there
constexpr uint64_t kThird = 8;
constexpr uint64_t kHash = 4711;

class ReducerViews : public ReducerTest {
 protected:
  static reducer::ReducerOptions patient() {
    auto o = short_deadlines();
    o.peer_timeout = 60 * kSecond;
    o.absence_timeout = 60 * kSecond;
    o.drain_timeout = 60 * kSecond;
    return o;
  }
  // With two more reducers.
  static Shape surviving(uint32_t ranks) {
    return {.session = session_id(1),
            .ranks = ranks,
            .more_reducers = {kOther, kThird},
            .features = wire::kFeaturesSurvive};
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
  [[nodiscard]] bool eventually_of_version(uint16_t version) const {
    return eventually([=](const auto& j) { return j["session_list"][0]["roster_version"] == version; });
  }
};

TEST_F(ReducerViews, AsksEveryRankAndCommitsTheSmallestAnswer) {
  start(patient());
  auto ranks = begin_session(port(), surviving(3));
  suspect(ranks[1], kOther);
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    EXPECT_EQ(query.version, 1);
    EXPECT_EQ(query.removed, std::vector<uint64_t>{kOther});
    EXPECT_TRUE(query.added.empty());
  }
  suspect(ranks[2], kOther);  // known
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

TEST_F(ReducerViews, ProposesAnewWhatTurnsOutToBeMore) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
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
  answer(ranks[1], 1, 4);  // of the version before: ignored
  answer(ranks[1], 2, 7);
  answer(ranks[0], 2, 6);
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 6u);
}

TEST_F(ReducerViews, SaysAgainToARankThatComesBack) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  ranks[1].control.close();
  suspect(ranks[0], kOther);
  (void)ranks[0].control.expect<wire::ViewQuery>();
  (void)ranks[1].resume();
  EXPECT_EQ(ranks[1].control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[0], 1, 3);
  // One that has answered is not asked again: what comes next is the commit.
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
  // The commit that stands, then the proposal that is open.
  suspect(ranks[0], kThird);
  for (auto& r : ranks) {
    EXPECT_EQ(r.control.expect<wire::ViewQuery>().version, 2);
    (void)r.resume();
    EXPECT_EQ(r.control.expect<wire::ViewCommit>().version, 1);
    EXPECT_EQ(r.control.expect<wire::ViewQuery>().version, 2);
  }
}

TEST_F(ReducerViews, EndsASessionWhoseRanksDisagreeOnTheView) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  suspect(ranks[0], kOther);
  for (auto& r : ranks) (void)r.control.expect<wire::ViewQuery>();
  answer(ranks[0], 1, 5);
  EXPECT_TRUE(eventually_of_version(1));
  answer(ranks[1], 1, 5, kHash + 1);
  for (auto& r : ranks) {
    const auto abort = r.control.expect<wire::Abort>();
    EXPECT_EQ(abort.code, Errc::kMismatch);
    EXPECT_THAT(abort.text, AllOf(HasSubstr("view 1"), HasSubstr("rank 0"), HasSubstr("rank 1")));
  }
}

TEST_F(ReducerViews, EndsASessionWithoutReducers) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  suspect(ranks[0], kOther);
  suspect(ranks[0], kThird);
  suspect(ranks[0], reducer->id());
  (void)ranks[1].control.expect<wire::ViewQuery>();
  (void)ranks[1].control.expect<wire::ViewQuery>();
  EXPECT_EQ(ranks[1].control.expect<wire::Abort>().code, Errc::kReducerLost);
}

TEST_F(ReducerViews, DoesNotWaitForRanksThatHaveLeft) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  ranks[1].leave();
  suspect(ranks[0], kOther);
  EXPECT_EQ(ranks[0].control.expect<wire::ViewQuery>().version, 1);
  answer(ranks[0], 1, 5);
  EXPECT_EQ(ranks[0].control.expect<wire::ViewCommit>().base_chunk, 5u);
}

TEST_F(ReducerViews, ClosesOnARosterThatIsNone) {
  start(patient());
  auto ranks = begin_session(port(), surviving(1));
  wire::ViewKnown known;
  known.added = {9};
  known.addresses = "a,b";
  ranks[0].control.send(known, ranks[0].joined.handle);
  EXPECT_TRUE(ranks[0].control.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "bad_field"));
  EXPECT_EQ(status()["sessions"]["open"], 1);
}

TEST_F(ReducerViews, OneThatIsRemovedGoesQuietly) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  suspect(ranks[0], reducer->id());
  EXPECT_TRUE(eventually_of_version(1));
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

// A session removes an id for good; the process may have been frozen, or taken from the list and put back.
TEST_F(ReducerViews, IsAnotherToASessionThatHasGoneOnWithoutIt) {
  start(patient());
  const auto id_for = [this](uint8_t session) {
    ScriptedConnection c(port());
    wire::Hello hello;
    hello.session = session_id(session);
    hello.purpose = wire::Purpose::kStatus;
    return c.greet(hello).reducer;
  };
  const uint64_t first = reducer->id();
  auto ranks = begin_session(port(), surviving(2));
  EXPECT_EQ(id_for(1), first);
  suspect(ranks[0], first);
  EXPECT_TRUE(eventually_of_version(1));
  EXPECT_EQ(id_for(1), first) << "its ranks are still here";
  close_all(ranks);
  EXPECT_TRUE(eventually_empty());
  const uint64_t second = id_for(1);
  EXPECT_NE(second, first);
  EXPECT_EQ(id_for(1), second);
  EXPECT_EQ(id_for(2), first) << "of others it has not gone";

  // Under that one it is joined again, and no other.
  Shape again = surviving(1);
  again.more_reducers = {};
  again.reducers_before = {kOther};
  again.incarnation = 99;
  auto back = begin_session(port(), again);
  wire::ViewKnown known;
  known.removed = {first};
  known.added = known.seated = {second};
  back[0].control.send(known, back[0].joined.handle);
  suspect(back[0], kOther);  // it is the last one, and the arbiter
  EXPECT_EQ(back[0].control.expect<wire::ViewQuery>().added, std::vector<uint64_t>{second});
}

TEST_F(ReducerViews, DrainsByLettingSessionsGo) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  reducer->drain();
  for (auto& r : ranks) {
    const auto notice = r.control.expect<wire::DrainNotice>();
    EXPECT_GT(notice.deadline_ms, 0u);
    EXPECT_LE(notice.deadline_ms, 60'000u);
  }
  (void)ranks[0].resume();
  EXPECT_GT(ranks[0].control.expect<wire::DrainNotice>().deadline_ms, 0u);
  for (auto& r : ranks) suspect(r, reducer->id(), Errc::kDraining);
  EXPECT_TRUE(eventually_of_version(1));
  expect_sums(ranks, 0);  // the old view runs until the new one does
  close_all(ranks);
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrained);
  EXPECT_EQ(status()["sessions"]["moved"], 1);
  EXPECT_EQ(status()["sessions"]["failed"], 0);
}

TEST_F(ReducerViews, LetsNobodyElseGoWhileItDrains) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  reducer->drain();
  for (auto& r : ranks) (void)r.control.expect<wire::DrainNotice>();
  suspect(ranks[0], kThird, Errc::kDraining);
  suspect(ranks[0], kOther);  // but it believes that one is dead
  EXPECT_EQ(ranks[0].control.expect<wire::ViewQuery>().removed, std::vector<uint64_t>{kOther});
}

TEST_F(ReducerViews, ServesToItsEndWhatHasNoOtherReducer) {
  start(patient());
  Shape alone = surviving(1);
  alone.more_reducers = {};
  auto ranks = begin_session(port(), alone);
  reducer->drain();
  EXPECT_TRUE(eventually([](const auto& j) { return j["draining"] == true; }));
  expect_sums(ranks, 0);
  // No DRAIN_NOTICE comes in between.
  for (int beats = 0; beats < 3; ++beats) (void)ranks[0].control.expect<wire::Heartbeat>();
  ranks[0].leave();
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrained);
  EXPECT_EQ(status()["sessions"]["completed"], 1);
}

TEST_F(ReducerViews, TellsOfTheDrainWhenAnotherReducerHasCome) {
  start(patient());
  Shape alone = surviving(1);
  alone.more_reducers = {};
  auto ranks = begin_session(port(), alone);
  reducer->drain();
  EXPECT_TRUE(eventually([](const auto& j) { return j["draining"] == true; }));
  wire::ViewKnown known;
  known.added = {99};
  ranks[0].control.send(known, ranks[0].joined.handle);
  (void)ranks[0].control.expect<wire::ViewQuery>();
  EXPECT_GT(ranks[0].control.expect<wire::DrainNotice>().deadline_ms, 0u);
}

TEST_F(ReducerViews, WhatIsStoppedIsLeftToTheOthersWithoutAWord) {
  auto options = patient();
  options.drain_timeout = 300 * kMillisecond;
  start(options);
  auto ranks = begin_session(port(), surviving(2));
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

TEST_F(ReducerViews, ComesToASessionThatRuns) {
  start(patient());
  // The first view was kOther and kThird; kOther has been removed since.
  Shape shape = surviving(2);
  shape.more_reducers = {};
  shape.reducers_before = {kOther, kThird};
  shape.incarnation = 99;
  auto ranks = begin_session(port(), shape);
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["state"] == "active"; }));
  suspect(ranks[0], kThird);  // the only other one
  EXPECT_TRUE(eventually_of_version(1));
  EXPECT_EQ(status()["view_changes"]["proposed"], 0) << "before it knows what it is a part of";
  wire::ViewKnown known;
  known.removed = {kOther};
  known.added = known.seated = {reducer->id()};
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

TEST_F(ReducerViews, ComesWhileOthersComeAndGo) {
  start(patient());
  Shape shape = surviving(2);
  shape.more_reducers = {};
  shape.reducers_before = {kOther};
  shape.incarnation = 99;
  ScriptedMember first(port(), shape);
  first.join();
  first.expect_joined();
  // The second rank joins in a later view: another hash, another list.
  shape.rank = 1;
  shape.view_hash = 43;
  shape.more_reducers = {UINT64_MAX};
  ScriptedMember second(port(), shape);
  second.join();
  second.expect_joined();
  first.attach();
  second.attach();
  // One of another incarnation, or of none, is not theirs.
  for (const uint64_t incarnation : {uint64_t{0}, uint64_t{98}}) {
    Shape other = shape;
    other.session = session_id(2);
    other.incarnation = 99;
    ScriptedMember theirs(port(), other);
    theirs.join();
    theirs.expect_joined();
    other.rank = 0;
    other.incarnation = incarnation;
    ScriptedMember stranger(port(), other);
    stranger.join();
    EXPECT_EQ(stranger.control.expect<wire::Refused>().code, Errc::kMismatch);
    EXPECT_FALSE(theirs.control.receive()) << "no ABORT, which would end the session elsewhere";
  }
  for (auto* r : {&first, &second}) r->commit_as(99);
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["state"] == "active"; }));
  EXPECT_EQ(status()["closed"].value("bad_field", 0), 0);
}

TEST_F(ReducerViews, WhoLeftBeforeItCameIsNotWaitedFor) {
  auto options = patient();
  options.absence_timeout = 100 * kMillisecond;
  start(options);
  Shape shape = surviving(2);
  shape.more_reducers = {};
  shape.reducers_before = {kOther};
  shape.incarnation = 99;
  ScriptedMember rank(port(), shape);
  rank.join();
  rank.expect_joined();
  rank.attach();
  rank.commit_as(99);
  wire::ViewKnown known;
  known.added = known.seated = {reducer->id()};
  rank.control.send(known, rank.joined.handle);
  suspect(rank, kOther);
  EXPECT_EQ(rank.control.expect<wire::ViewQuery>().version, 3);
  answer(rank, 3, 20);
  EXPECT_EQ(rank.control.expect<wire::ViewCommit>().base_chunk, 20u);
  rank.leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerViews, IsNoArbiterOfTheVoteWhereTheSessionRuns) {
  auto options = patient();
  options.join_timeout = 100 * kMillisecond;
  start(options);
  Shape shape = surviving(1);
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
