// Fault-tolerant sessions on the reducer's control side: absent, silent and excluded ranks, at the arbiter
// and at other reducers.
#include <future>

#include "tests/functional/reducer_recovery_fixture.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

class ReducerRankLossTest : public ReducerRecoveryTest {};

TEST_F(ReducerRankLossTest, TheArbiterReportsALostRank) {
  auto options = long_timeouts();
  options.absence_timeout = 300 * kMillisecond;
  start(options);
  for (const bool lane_only : {false, true}) {
    auto ranks = start_session(port(), fault_tolerant(3));
    expect_sums(ranks, 0);
    ranks[1].lanes.clear();
    if (!lane_only) ranks[1].control.close();
    for (const size_t r : {size_t{0}, size_t{2}}) {
      const auto abort = beat_until_abort(ranks[r]);
      EXPECT_EQ(abort.code, Errc::kPeerLost);
      EXPECT_EQ(abort.rank, 1u);
      EXPECT_THAT(abort.text, AllOf(HasSubstr("rank 1 (127.0.0.1:"), HasSubstr("no connection for ")));
    }
    ranks.clear();
    EXPECT_TRUE(eventually_empty());
  }
}

TEST_F(ReducerRankLossTest, ARankThatHasLeftIsNotAbsent) {
  auto options = long_timeouts();
  options.absence_timeout = 200 * kMillisecond;
  start(options);
  auto ranks = start_session(port(), fault_tolerant(2));
  ranks[0].leave();
  ranks[0].control.close();
  EXPECT_TRUE(run_for(0.5));
  ranks[1].leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

// A lane may sum before the control loop has read COMMIT; a connection that breaks then ends the session.
bool is_active(const nlohmann::json& status) {
  const auto& sessions = status["session_list"];
  return sessions.size() == 1 && sessions.at(0)["state"] == "active";
}

// A rank died while its communicator was idle, and the others close theirs. Nobody waits for the absence
// deadline.
TEST_F(ReducerRankLossTest, ASessionEndsWhenTheOthersLeaveARankThatIsGone) {
  start(long_timeouts());
  for (const bool dies_first : {true, false}) {
    auto ranks = start_session(port(), fault_tolerant(3));
    expect_sums(ranks, 0);
    EXPECT_TRUE(eventually(is_active));
    if (dies_first) disconnect(ranks[1]);
    EXPECT_TRUE(eventually_absent(dies_first ? 1 : 0));
    // Rank 1 has not reported the result that the others have.
    for (const size_t r : {size_t{0}, size_t{2}})
      ranks[r].control.send(wire::Leave{.finished = 1}, ranks[r].joined.handle);
    if (!dies_first) disconnect(ranks[1]);
    for (const size_t r : {size_t{0}, size_t{2}}) (void)ranks[r].control.expect<wire::LeaveAck>();
    EXPECT_TRUE(eventually_empty());
  }
  EXPECT_EQ(status()["sessions"]["failed"], 2);
}

TEST_F(ReducerRankLossTest, ARankWithAConnectionOrABrokenOneMayReturnAfterTheOthersLeft) {
  start(long_timeouts());
  for (const bool is_broken : {false, true}) {
    auto ranks = start_session(port(), fault_tolerant(2));
    expect_sums(ranks, 0);
    EXPECT_TRUE(eventually(is_active));
    if (is_broken) {
      ranks[1].lanes[0].send_text(std::string(200, 'x'));
      EXPECT_TRUE(ranks[1].lanes[0].closed_within(10 * kSecond));
    }
    ranks[1].control.close();
    EXPECT_TRUE(eventually_absent(1));
    ranks[0].control.send(wire::Leave{.finished = 0}, ranks[0].joined.handle);
    (void)ranks[0].control.expect<wire::LeaveAck>();
    EXPECT_TRUE(run_for(2.8));
    (void)ranks[1].resume();
    if (is_broken) resume_lane(ranks[1]);
    ranks[1].leave();
    EXPECT_TRUE(eventually_empty());
  }
  EXPECT_EQ(status()["sessions"]["completed"], 2);
}

TEST_F(ReducerRankLossTest, OnlyTheArbiterDeclaresARankLost) {
  auto options = long_timeouts();
  options.absence_timeout = 200 * kMillisecond;
  start(options);
  auto ranks = start_session(port(), not_arbiter(2));
  disconnect(ranks[1]);
  EXPECT_TRUE(eventually_absent(1));
  EXPECT_TRUE(run_for(0.5));
  EXPECT_EQ(status()["sessions"]["open"], 1);
  (void)ranks[1].resume();
  // Without any rank the reducer abandons the session.
  for (auto& r : ranks) disconnect(r);
  EXPECT_TRUE(eventually_empty());
  EXPECT_EQ(status()["sessions"]["failed"], 1);
}

TEST_F(ReducerRankLossTest, AnyReducerClosesASilentRank) {
  auto options = long_timeouts();
  options.peer_timeout = 300 * kMillisecond;
  start(options);
  auto ranks = start_session(port(), not_arbiter(2));
  EXPECT_TRUE(ranks[1].control.closed_within(10 * kSecond));
  EXPECT_TRUE(ranks[1].lanes[0].closed_within(10 * kSecond));
  EXPECT_EQ(status()["sessions"]["open"], 1);
  EXPECT_TRUE(eventually_absent(2));
  (void)ranks[1].resume();
  EXPECT_EQ(status()["resumes"]["control"], 1);
}

// The rank is stopped, or the path is silent. A rank that does not reconnect is lost.
TEST_F(ReducerRankLossTest, TheArbiterClosesASilentRankAndLosesItIfItStaysAway) {
  auto options = long_timeouts();
  options.peer_timeout = 2 * kSecond;
  options.absence_timeout = 3 * kSecond;
  options.heartbeat = 50 * kMillisecond;  // wakes beat_until_abort()
  start(options);
  auto ranks = start_session(port(), fault_tolerant(2));
  auto ended = std::async(std::launch::async, [&] { return beat_until_abort(ranks[0]); });
  for (const bool reconnects : {true, false}) {
    EXPECT_TRUE(ranks[1].control.closed_within(10 * kSecond));
    EXPECT_TRUE(ranks[1].lanes[0].closed_within(10 * kSecond));
    if (!reconnects) break;
    (void)ranks[1].resume();
    resume_lane(ranks[1]);
    EXPECT_TRUE(eventually_absent(0));
  }
  const auto abort = ended.get();
  EXPECT_EQ(abort.code, Errc::kPeerLost);
  EXPECT_EQ(abort.rank, 1u);
  EXPECT_THAT(abort.text, AllOf(HasSubstr("no connection for "), HasSubstr("no message for ")));
}

// The ranks may be about to continue without this reducer and only wait for the stopped rank.
TEST_F(ReducerRankLossTest, AStoppedRankDoesNotProveThatAnotherOneIsLost) {
  auto options = long_timeouts();
  options.heartbeat = 50 * kMillisecond;
  options.absence_timeout = kSecond;
  options.peer_timeout = 2 * kSecond;
  start(options);
  auto ranks = start_session(port(), fault_tolerant(2));
  ASSERT_TRUE(eventually_active());
  disconnect(ranks[1]);
  for (;;) {
    const auto frame = ranks[0].control.receive();
    if (!frame) break;
    EXPECT_EQ(frame->header.type, wire::FrameType::kHeartbeat) << to_string(frame->header.type);
  }
  EXPECT_TRUE(eventually_empty());
}

// One end cannot tell which side corrupts the frames.
TEST_F(ReducerRankLossTest, ARankWithManyBadFramesIsExcluded) {
  start(long_timeouts());
  auto ranks = start_session(port(), not_arbiter(2));
  break_by_bad_frames(ranks[1]);
  EXPECT_TRUE(ranks[1].control.closed_within(10 * kSecond));
  (void)ranks[1].request_resume();
  auto lane = ranks[1].request_lane(0);
  for (auto* const connection : {&ranks[1].control, &lane}) {
    const auto refused = connection->expect<wire::Refused>();
    EXPECT_EQ(refused.code, Errc::kUnknownSession);
    EXPECT_THAT(refused.text, HasSubstr("too many bad frames"));
  }
  // The session continues with the other rank.
  EXPECT_EQ(status()["sessions"]["open"], 1);
  (void)ranks[0].resume();
}

TEST_F(ReducerRankLossTest, ARankWithManyBadFramesIsLostWithoutOtherReducers) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  break_by_bad_frames(ranks[1]);
  const auto abort = beat_until_abort(ranks[0]);
  EXPECT_EQ(abort.code, Errc::kPeerLost);
  EXPECT_EQ(abort.rank, 1u);
  EXPECT_THAT(abort.text, AllOf(HasSubstr("rank 1"), HasSubstr("bad frames, last bad_magic")));
}

// The rank may not notice that the packets of one connection are dropped.
TEST_F(ReducerRankLossTest, ALaneTimeoutClosesTheRanksOtherConnections) {
  auto options = long_timeouts();
  options.frame_timeout = 200 * kMillisecond;
  start(options);
  auto ranks = start_session(port(), not_arbiter(2));
  ASSERT_TRUE(eventually_active());
  wire::FrameHeader h;
  std::array<std::byte, wire::kHeaderBytes> bytes{};
  wire::encode_header(h, {}, bytes);
  ranks[1].lanes[0].send_bytes(std::span(bytes).first(20));  // part of a header
  EXPECT_TRUE(ranks[1].lanes[0].closed_within(10 * kSecond));
  EXPECT_TRUE(ranks[1].control.closed_within(10 * kSecond));
  (void)ranks[1].resume();
  EXPECT_EQ(status()["session_list"][0]["absent_ranks"], 1);
}

// The reducer may have been partitioned or stopped, and the ranks may continue without it.
TEST_F(ReducerRankLossTest, TheArbiterLosesNoRankIfAllAreSilent) {
  auto options = long_timeouts();
  options.peer_timeout = 2 * kSecond;
  options.absence_timeout = 2 * kSecond;
  start(options);
  auto ranks = start_session(port(), fault_tolerant(2));
  for (auto& r : ranks) {
    EXPECT_TRUE(r.control.closed_within(10 * kSecond));  // without ABORT
    EXPECT_TRUE(r.lanes[0].closed_within(10 * kSecond));
  }
  EXPECT_TRUE(eventually_empty());
  EXPECT_NE(id_for(1), reducer->id()) << "the ranks may have removed the old id";
}

TEST_F(ReducerRankLossTest, ALossBeforeTheCommitEndsTheJoin) {
  start(long_timeouts());
  std::vector<ScriptedMember> ranks;
  for (uint32_t r = 0; r < 2; ++r) {
    Shape shape = fault_tolerant(2);
    shape.rank = r;
    ranks.push_back(join(shape));
  }
  ranks[1].control.close();
  const auto verdict = ranks[0].control.expect<wire::Verdict>();
  EXPECT_EQ(verdict.commit, 0);
  EXPECT_EQ(verdict.reason.code, Errc::kPeerLost);
  ranks.clear();
  EXPECT_TRUE(eventually_empty());
}

}  // namespace
}  // namespace sluice::test
