// The life of a session on a real reducer with real sockets: join, vote, reduction, leave, losses, drain. The
// client is scripted and follows protocol.md.
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

TEST_F(ReducerTest, RunsASessionFromJoinToLeave) {
  start();
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = 3, .lanes = 2});
  for (uint64_t s = 0; s < 50; ++s) expect_sums(ranks, s);
  EXPECT_EQ(status()["session_list"][0]["id"], "0101010101010101") << "whoever sees the status must not join";
  for (auto& r : ranks) r.leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerTest, ReportsAMismatchToEveryRank) {
  struct Case {
    const char* expected_text;
    void (*change)(Shape&);
  };
  const Case cases[] = {
      {"the number of ranks: rank 1 (127.0.0.1:", [](Shape& s) { s.ranks = 4; }},
      {"window bytes", [](Shape& s) { s.window_bytes *= 2; }},
      {"slot bytes", [](Shape& s) { s.slot_bytes /= 2; }},
      {"lanes per reducer", [](Shape& s) { s.lanes = 2; }},
      {"the number of reducers: rank 1", [](Shape& s) { s.reducers_after = {7}; }},
      {"view hash", [](Shape& s) { s.view_hash = 43; }},
  };
  start();
  uint8_t tag = 10;
  for (const Case& c : cases) {
    const Shape agreed{.session = session_id(tag), .rank = 0, .ranks = 3};
    Shape other = agreed;
    other.rank = 1;
    c.change(other);
    ScriptedMember first = join(agreed);
    const auto refused = refusal(other);
    EXPECT_EQ(refused.code, Errc::kMismatch);
    EXPECT_EQ(refused.rank, 1u);
    EXPECT_THAT(refused.text, AllOf(HasSubstr(c.expected_text), HasSubstr("rank 1"), HasSubstr("rank 0")));
    EXPECT_EQ(first.control.expect<wire::Verdict>().reason.text, refused.text);
    // A rank that joins afterwards gets the same error at once.
    Shape late = agreed;
    late.rank = 2;
    EXPECT_EQ(refusal(late).text, refused.text);
    ++tag;
  }
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerTest, RefusesARankThatHasJoinedAndNamesItsAddress) {
  start();
  ScriptedMember holder = join({.session = session_id(2), .rank = 1, .ranks = 2});
  const auto refused = refusal({.session = session_id(2), .rank = 1, .ranks = 2});
  EXPECT_EQ(refused.code, Errc::kRankTaken);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("rank 1 has already joined"), HasSubstr("127.0.0.1:")));
  EXPECT_EQ(status()["sessions"]["open"], 1);
}

TEST_F(ReducerTest, RefusesASessionOverTheMemoryLimitAndServesTheOthers) {
  auto options = test_options();
  options.memory_limit = 1 * kMiB;
  start(options);
  auto running = start_session(port(), {.session = session_id(1), .ranks = 2});
  const uint64_t reserved = status()["memory"]["reserved_bytes"];
  const auto refused = refusal({.session = session_id(2), .rank = 0, .ranks = 64});
  EXPECT_EQ(refused.code, Errc::kMemoryLimit);
  EXPECT_THAT(refused.text,
              AllOf(HasSubstr("needs "), HasSubstr("limit is 1048576"), HasSubstr(std::to_string(reserved))));
  expect_sums(running, 0);
  EXPECT_EQ(status()["memory"]["reserved_bytes"], reserved);
}

TEST_F(ReducerTest, RefusesAClientWithoutACommonVersion) {
  start();
  ScriptedConnection c(port());
  c.send_bytes(wire::encode_message(wire::Hello{.min_version = 7, .max_version = 9}, 0, 7));
  const auto refused = c.expect<wire::Refused>();
  EXPECT_EQ(refused.code, Errc::kNoCommonVersion);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("reducer supports 1"), HasSubstr("client supports 7-9")));
}

TEST_F(ReducerTest, ChoosesTheHighestCommonVersion) {
  start();
  ScriptedConnection c(port());
  wire::Hello hello;
  hello.max_version = 200;
  hello.purpose = wire::Purpose::kStatus;
  EXPECT_EQ(c.handshake(hello).version, wire::kVersionMax);
}

TEST_F(ReducerTest, NamesTheRanksThatNeverJoined) {
  start();
  ScriptedMember first = join({.session = session_id(3), .rank = 1, .ranks = 3, .join_timeout_ms = 300});
  const auto verdict = first.control.expect<wire::Verdict>();
  EXPECT_EQ(verdict.commit, 0);
  EXPECT_EQ(verdict.reason.code, Errc::kJoinTimeout);
  EXPECT_THAT(verdict.reason.text, HasSubstr("ranks 0, 2 did not join"));
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerTest, ReportsANoVoteToEveryRankAndStoresTheVerdict) {
  start();
  std::vector<ScriptedMember> ranks;
  for (uint32_t r = 0; r < 2; ++r) {
    ranks.push_back(join(Shape{.session = session_id(4), .rank = r, .ranks = 2}));
  }
  wire::Vote no;
  no.reason = {.code = Errc::kReducerLost, .text = "reducer 10.1.1.1:7470: connection refused"};
  ranks[1].control.send(no);
  for (auto& r : ranks) {
    const auto verdict = r.control.expect<wire::Verdict>();
    EXPECT_EQ(verdict.commit, 0);
    EXPECT_THAT(verdict.reason.text,
                AllOf(HasSubstr("rank 1"), HasSubstr("10.1.1.1:7470: connection refused")));
  }
  ScriptedConnection late(port());
  wire::Hello hello;
  hello.purpose = wire::Purpose::kVerdict;
  hello.session = session_id(4);
  late.handshake(hello);
  late.send(wire::VerdictQuery{});
  EXPECT_THAT(late.expect<wire::Verdict>().reason.text, HasSubstr("connection refused"));
}

TEST_F(ReducerTest, ReportsALostRankAndFreesTheSession) {
  start();
  auto healthy = start_session(port(), {.session = session_id(1), .ranks = 2});
  auto ranks = start_session(port(), {.session = session_id(5), .ranks = 3});
  expect_sums(ranks, 0);
  disconnect(ranks[1]);
  for (size_t r : {size_t{0}, size_t{2}}) {
    const auto abort = ranks[r].control.expect<wire::Abort>();
    EXPECT_EQ(abort.code, Errc::kPeerLost);
    EXPECT_EQ(abort.rank, 1u);
    EXPECT_THAT(abort.text, HasSubstr("rank 1 (127.0.0.1:"));
    ranks[r].lanes.clear();
  }
  EXPECT_TRUE(
      eventually([](const auto& j) { return j["sessions"]["open"] == 1 && j["sessions"]["ending"] == 0; }));
  expect_sums(healthy, 0);
}

TEST_F(ReducerTest, LosesASilentRankButNotOneThatSendsHeartbeats) {
  auto options = test_options();
  options.peer_timeout = 3 * kSecond;
  start(options);
  auto ranks = start_session(port(), {.session = session_id(6), .ranks = 2});
  const wire::Abort abort = beat_until_abort(ranks[0]);  // rank 1 is silent
  EXPECT_EQ(abort.rank, 1u);
  EXPECT_THAT(abort.text, HasSubstr("no message for "));
}

TEST_F(ReducerTest, NamesTheLateRankInHeartbeatsAndStatus) {
  start();
  auto ranks = start_session(port(), {.session = session_id(7), .ranks = 3});
  for (size_t r : {size_t{0}, size_t{2}}) ranks[r].contribute(0, {1, 2, 3});
  for (;;) {
    for (auto& r : ranks) r.control.send(wire::Heartbeat{});
    const auto beat = ranks[0].control.expect<wire::Heartbeat>();
    if (beat.waited_ms >= 100 && beat.missing == std::vector<uint32_t>{1}) break;
  }
  EXPECT_EQ(status()["session_list"][0]["missing"], nlohmann::json::array({1}));
  ranks[1].contribute(0, {1, 2, 3});
  EXPECT_EQ(ranks[0].result(0), (std::vector<float>{3, 6, 9}));
}

TEST_F(ReducerTest, ShowsWhatRanksReportAboutTheirPaths) {
  start();
  auto ranks = start_session(port(), {.session = session_id(7), .ranks = 3});
  const auto report = [&](uint64_t packets, uint64_t lost) {
    ranks[1].control.send(
        wire::Heartbeat{.missing = {}, .packets = packets, .lost_packets = lost, .stalled_ms = 6000});
    ranks[2].control.send(wire::Heartbeat{});  // as peers of version 0.1 do
  };
  report(1000, 20);
  report(900, 10);  // an older count adds nothing
  report(2000, 30);
  ASSERT_TRUE(eventually([](const auto& j) { return j["data"]["packets_in"] == 2000; }));
  const auto now = status();
  EXPECT_EQ(now["data"]["lost_packets_in"], 30);
  EXPECT_EQ(now["stalls"]["ranks"], 1);
  const auto session = now["session_list"][0];
  ASSERT_EQ(session["losses"].size(), 1u);
  EXPECT_EQ(session["losses"][0]["rank"], 1);
  EXPECT_EQ(session["losses"][0]["lost_packets"], 30);
  ASSERT_EQ(session["stalls"].size(), 1u);
  EXPECT_EQ(session["stalls"][0]["stalled_ms"], 6000);
}

TEST_F(ReducerTest, ForwardsTheReasonOfAnAbort) {
  start();
  auto ranks = start_session(port(), {.session = session_id(8), .ranks = 2});
  wire::Abort sent;
  sent.code = Errc::kReducerLost;
  sent.text = "reducer 2 lost";
  ranks[1].control.send(sent, ranks[1].joined.handle);
  disconnect(ranks[1]);
  const auto abort = ranks[0].control.expect<wire::Abort>();
  EXPECT_EQ(abort.code, Errc::kReducerLost);
  EXPECT_THAT(abort.text, AllOf(HasSubstr("rank 1"), HasSubstr("reducer 2 lost")));
  disconnect(ranks[0]);
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerTest, ExpiresAReservationThatIsNeverCommitted) {
  auto options = test_options();
  options.join_timeout = 2 * kSecond;
  start(options);
  ScriptedMember alone = join({.session = session_id(9), .rank = 0, .ranks = 1});
  alone.attach();
  EXPECT_EQ(alone.control.expect<wire::Verdict>().commit, 0);
  disconnect(alone);
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerTest, UsesTheSmallestRequestedJoinTimeout) {
  auto options = test_options();
  options.join_timeout = 600 * kSecond;
  start(options);
  const Shape patient{.session = session_id(11), .rank = 0, .ranks = 3, .join_timeout_ms = 600'000};
  Shape hasty = patient;
  hasty.rank = 1;
  hasty.join_timeout_ms = 300;
  ScriptedMember first = join(patient);
  ScriptedMember second = join(hasty);
  for (auto* m : {&first, &second}) {
    const auto verdict = m->control.expect<wire::Verdict>();
    EXPECT_EQ(verdict.reason.code, Errc::kJoinTimeout);
    EXPECT_THAT(verdict.reason.text, HasSubstr("rank 2 did not join"));
  }
}

TEST_F(ReducerTest, NothingRevokesTheVerdict) {
  auto options = test_options();
  options.join_timeout = 2 * kSecond;
  start(options);
  const Shape shape{.session = session_id(12), .ranks = 2};
  std::vector<ScriptedMember> ranks;
  for (uint32_t r = 0; r < 2; ++r) {
    Shape own = shape;
    own.rank = r;
    ranks.push_back(join(own));
  }
  for (auto& r : ranks) r.attach();
  for (auto& r : ranks) r.vote_yes();
  wire::Commit commit;
  for (auto& r : ranks) {
    const auto verdict = r.control.expect<wire::Verdict>();
    ASSERT_EQ(verdict.commit, 1);
    commit.incarnation = verdict.incarnation;
  }
  // Neither a mismatch nor the join timeout revokes the verdict.
  Shape other = shape;
  other.window_bytes *= 2;
  EXPECT_EQ(refusal(other).code, Errc::kMismatch);
  EXPECT_TRUE(run_for(2.5));
  for (auto& r : ranks) {
    r.control.send(commit, r.joined.handle);
    for (auto& lane : r.lanes) lane.send(commit, r.joined.handle);
  }
  expect_sums(ranks, 0);
}

TEST_F(ReducerTest, DrainFinishesRunningSessionsAndRefusesNewOnes) {
  start();
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = 2});
  reducer->drain();
  EXPECT_TRUE(eventually([](const auto& j) { return j["draining"] == true; }));
  EXPECT_EQ(refusal({.session = session_id(2), .rank = 0, .ranks = 1}).code, Errc::kDraining);
  expect_sums(ranks, 0);
  for (auto& r : ranks) r.leave();
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrained);
}

TEST_F(ReducerTest, DrainTimeoutCutsTheLingerTimeout) {
  auto options = test_options();
  options.drain_timeout = 200 * kMillisecond;
  options.linger_timeout = 60 * kSecond;
  start(options);
  const Nanos begin = monotonic_now();
  auto lost = start_session(port(), {.session = session_id(1), .ranks = 2});
  lost[0].control.close();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["ending"] == 1; }));
  const auto running = start_session(port(), {.session = session_id(2), .ranks = 1});
  reducer->drain();
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrainTimeout);
  EXPECT_LT(monotonic_now() - begin, 20 * kSecond);
}

TEST_F(ReducerTest, ReportsItsStatusDuringAndAfterTheShutdown) {
  start();
  std::vector<std::thread> queries;
  for (int i = 0; i < 2; ++i) {
    queries.emplace_back([this] {
      while (status()["draining"] == false) {
      }
      for (int more = 0; more < 5; ++more) EXPECT_EQ(status()["sessions"]["open"], 0);
    });
  }
  reducer->drain();
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrained);
  for (auto& thread : queries) thread.join();
  EXPECT_EQ(status()["connections"]["open"], 0);
}

TEST_F(ReducerTest, DrainTimeoutEndsRunningSessions) {
  auto options = test_options();
  options.drain_timeout = 200 * kMillisecond;
  start(options);
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = 1});
  reducer->drain();
  EXPECT_EQ(ranks[0].control.expect<wire::Abort>().code, Errc::kDraining);
  disconnect(ranks[0]);
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrainTimeout);
}

}  // namespace
}  // namespace sluice::test
