// Fault-tolerant sessions on the reducer's control side: resumed connections and leaves. tests/unit/reducer
// covers the lanes.
#include "tests/functional/reducer_recovery_fixture.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

TEST_F(ReducerRecoveryTest, RefusesRanksThatDisagreeOnFaultTolerance) {
  start();
  for (const bool first_requests : {true, false}) {
    Shape shape = fault_tolerant(2);
    shape.session = session_id(first_requests ? 10 : 11);
    shape.features = first_requests ? wire::kFaultToleranceFeatures : 0;
    ScriptedMember first = join(shape);
    shape.rank = 1;
    shape.features = first_requests ? 0 : wire::kFaultToleranceFeatures;
    const auto refused = refusal(shape);
    EXPECT_EQ(refused.code, Errc::kMismatch);
    const std::string yes = first_requests ? "rank 0" : "rank 1";
    const std::string no = first_requests ? "rank 1" : "rank 0";
    EXPECT_THAT(refused.text, AllOf(HasSubstr(yes + " (127.0.0.1:"), HasSubstr("requests it, " + no)));
    EXPECT_EQ(first.control.expect<wire::Verdict>().reason.text, refused.text);
  }
  for (const uint64_t half : {wire::kFeatureResume, wire::kFeatureViewChange}) {
    Shape shape = fault_tolerant(1);
    shape.session = session_id(12);
    shape.features = half;
    EXPECT_EQ(refusal(shape).code, Errc::kBadField);
  }
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerRecoveryTest, ResumesABrokenControlConnection) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  expect_sums(ranks, 0);
  ranks[1].control.close();
  EXPECT_TRUE(eventually_absent(1));
  EXPECT_EQ(status()["session_list"][0]["absent"], nlohmann::json::array({1}));
  expect_sums(ranks, 1);
  (void)ranks[1].resume();
  EXPECT_TRUE(eventually_absent(0));
  EXPECT_EQ(status()["resumes"]["control"], 1);
  expect_sums(ranks, 2);
  for (auto& r : ranks) r.leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerRecoveryTest, ReplacesAControlConnectionThatSeemsAlive) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(1));
  auto old = ranks[0].resume();
  EXPECT_TRUE(old.closed_within(10 * kSecond));
  EXPECT_EQ(status()["session_list"][0]["absent_ranks"], 0);
  expect_sums(ranks, 0);
  ranks[0].leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerRecoveryTest, RefusesToResumeAnotherSession) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  const auto refused = [&](auto change, wire::Purpose purpose = wire::Purpose::kControl) {
    wire::Hello hello;
    hello.purpose = purpose;
    hello.session = session_id(1);
    hello.ranks = 2;
    hello.features = wire::kFaultToleranceFeatures;
    hello.incarnation = ranks[0].incarnation;
    wire::Attach attach{.handle = ranks[0].joined.handle, .view_hash = 42, .mac = {}};
    change(hello, attach);
    ScriptedConnection c(port());
    c.handshake(hello);
    c.send(attach);
    return c.expect<wire::Refused>().code;
  };
  for (const auto purpose : {wire::Purpose::kControl, wire::Purpose::kLane}) {
    EXPECT_EQ(refused([](auto& h, auto&) { ++h.incarnation; }, purpose), Errc::kUnknownSession);
    EXPECT_EQ(refused([](auto& h, auto&) { h.session = session_id(2); }, purpose), Errc::kUnknownSession);
    EXPECT_EQ(refused([](auto&, auto& a) { ++a.handle; }, purpose), Errc::kUnknownSession);
    EXPECT_EQ(refused([](auto&, auto& a) { ++a.view_hash; }, purpose), Errc::kBadView);
    EXPECT_EQ(refused([](auto& h, auto&) { h.job = "another"; }, purpose), Errc::kUnauthenticated);
  }
  EXPECT_EQ(refused([](auto& h, auto&) { h.rank = 2; }), Errc::kBadField);
  EXPECT_EQ(refused([](auto& h, auto&) { h.ranks = 3; }), Errc::kBadField);
  EXPECT_EQ(refused([](auto& h, auto&) { h.rank = 2; }, wire::Purpose::kLane), Errc::kUnexpectedMessage);
  EXPECT_EQ(refused([](auto& h, auto&) { h.lane = 1; }, wire::Purpose::kLane), Errc::kTooMany);
  // A rank that joins again replaces neither a connected rank nor a disconnected one.
  for (const bool broken : {false, true}) {
    if (broken) {
      ranks[0].control.close();
      EXPECT_TRUE(eventually_absent(1));
    }
    EXPECT_EQ(refusal(fault_tolerant(2)).code, Errc::kRankTaken);
  }
  // A client without the features cannot resume.
  ScriptedConnection old(port());
  wire::Hello hello;
  hello.session = session_id(1);
  hello.ranks = 2;
  hello.incarnation = ranks[0].incarnation;
  old.handshake(hello);
  old.send(wire::Attach{.handle = ranks[0].joined.handle, .view_hash = 42, .mac = {}});
  EXPECT_TRUE(old.closed_within(10 * kSecond));
  EXPECT_EQ(status()["resumes"]["control"], 0);
}

TEST_F(ReducerRecoveryTest, RefusesToResumeASessionWithoutFaultTolerance) {
  start(long_timeouts());
  Shape shape = fault_tolerant(2);
  shape.features = 0;
  auto ranks = start_session(port(), shape);
  wire::Hello hello;
  hello.session = session_id(1);
  hello.ranks = 2;
  hello.features = wire::kFaultToleranceFeatures;
  hello.incarnation = ranks[0].incarnation;
  ScriptedConnection c(port());
  c.handshake(hello);
  c.send(wire::Attach{.handle = ranks[0].joined.handle, .view_hash = 42, .mac = {}});
  EXPECT_EQ(c.expect<wire::Refused>().code, Errc::kUnknownSession);
  ranks[0].control.send(wire::Suspect{.reducer = kOtherReducer}, ranks[0].joined.handle);
  EXPECT_EQ(ranks[1].control.expect<wire::Abort>().code, Errc::kUnexpectedMessage);
}

TEST_F(ReducerRecoveryTest, RepeatsLeaveAckOnAResumedConnection) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  expect_sums(ranks, 0);
  ranks[0].leave();
  (void)ranks[0].resume();
  ranks[0].leave();
  ranks[1].leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerRecoveryTest, AcknowledgesALeaveOnceNoRankNeedsItsResults) {
  auto options = long_timeouts();
  options.linger_timeout = 60 * kSecond;
  start(options);
  auto ranks = start_session(port(), fault_tolerant(3));
  const auto send_leave = [](ScriptedMember& m, uint64_t finished) {
    m.control.send(wire::Leave{.finished = finished}, m.joined.handle);
  };
  const auto finished = [](ScriptedMember& m, uint64_t chunks) {
    m.control.send(wire::Heartbeat{.missing = {}, .finished = chunks}, m.joined.handle);
  };
  const auto expect_progress_request = [](ScriptedMember& m) {
    while (m.control.expect<wire::Heartbeat>().answer == 0) {
    }
  };
  finished(ranks[1], 2);
  send_leave(ranks[0], 2);
  expect_progress_request(ranks[2]);
  expect_progress_request(ranks[2]);
  finished(ranks[2], 1);
  expect_progress_request(ranks[2]);
  finished(ranks[2], 2);
  (void)ranks[0].control.expect<wire::LeaveAck>();
  // Rank 2 lacks a result of rank 1, but leaves too.
  send_leave(ranks[1], 3);
  expect_progress_request(ranks[2]);
  send_leave(ranks[2], 2);
  (void)ranks[1].control.expect<wire::LeaveAck>();
  (void)ranks[2].control.expect<wire::LeaveAck>();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerRecoveryTest, ALeaveStaysPendingAcrossAViewChange) {
  auto options = long_timeouts();
  options.linger_timeout = 60 * kSecond;
  start(options);
  Shape shape = fault_tolerant(2);
  shape.reducers_after = {kOtherReducer};
  auto ranks = start_session(port(), shape);
  ranks[0].control.send(wire::Leave{.finished = 2}, ranks[0].joined.handle);
  ranks[1].control.send(wire::Suspect{.reducer = kOtherReducer}, ranks[1].joined.handle);
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    r.control.send(wire::ViewAnswer{.version = query.version, .view_hash = 77, .first_unfinished_chunk = 1},
                   r.joined.handle);
  }
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 1u);
  ranks[1].control.send(wire::Heartbeat{.missing = {}, .finished = 2}, ranks[1].joined.handle);
  (void)ranks[0].control.expect<wire::LeaveAck>();
}

TEST_F(ReducerRecoveryTest, AttachesLanesOfARunningSession) {
  start(long_timeouts());
  ScriptedMember rank = join(fault_tolerant(1));
  rank.vote_yes();
  rank.commit();
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["state"] == "active"; }));
  rank.attach();
  rank.lanes[0].send(wire::Commit{.incarnation = rank.incarnation}, rank.joined.handle);
  rank.contribute(0, {1, 2});
  EXPECT_EQ(rank.result(0), (std::vector<float>{1, 2}));
}

TEST_F(ReducerRecoveryTest, ALaneConnectionReplacesItsPredecessor) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  expect_sums(ranks, 0);
  for (uint64_t held = 1; held <= 2; ++held) {
    // First with an old connection that seems alive, then with a broken one.
    ScriptedConnection old = std::move(ranks[1].lanes[0]);
    if (held == 2) {
      old.close();
      EXPECT_TRUE(eventually_absent(1));
    }
    ranks[1].lanes[0] = ranks[1].request_lane(0);
    EXPECT_EQ(ranks[1].lanes[0].expect<wire::Attached>().slots, 4u);
    if (held == 1) {
      EXPECT_TRUE(old.closed_within(10 * kSecond));
    }
    ranks[1].lanes[0].send(
        wire::Resume{.incarnation = ranks[1].incarnation, .view_hash = 42, .results_held = held},
        ranks[1].joined.handle);
    EXPECT_EQ(ranks[1].lanes[0].expect<wire::ResumeAck>().contributions_held, held);
    EXPECT_TRUE(eventually_absent(0));
    EXPECT_EQ(status()["resumes"]["lane"], held);
    expect_sums(ranks, held);
  }
}

TEST_F(ReducerRecoveryTest, ALaneThatResumesBeforeTheCommitMayRetry) {
  start(long_timeouts());
  ScriptedMember rank = join(fault_tolerant(2));
  rank.attach();
  EXPECT_EQ(rank.request_lane(0).expect<wire::Refused>().code, Errc::kRankTaken);
  rank.incarnation = 99;  // as after the verdict
  EXPECT_EQ(rank.request_lane(0).expect<wire::Refused>().code, Errc::kUnknownSession);
}

TEST_F(ReducerRecoveryTest, ABadFrameClosesOnlyItsConnection) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  ASSERT_TRUE(eventually_active());
  ranks[0].control.send(wire::Welcome{}, ranks[0].joined.handle);
  EXPECT_TRUE(ranks[0].control.closed_within(10 * kSecond));
  ranks[1].lanes[0].send_text(std::string(200, 'x'));
  EXPECT_TRUE(ranks[1].lanes[0].closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_absent(2));
  EXPECT_TRUE(eventually_counted("closed", "unexpected_message"));
  EXPECT_TRUE(eventually_counted("closed", "bad_magic"));
  (void)ranks[0].resume();
  EXPECT_TRUE(eventually_absent(1));
}

TEST_F(ReducerRecoveryTest, AnAbortEndsTheSession) {
  start(long_timeouts());
  auto ranks = start_session(port(), fault_tolerant(2));
  wire::Abort sent;
  sent.code = Errc::kAborted;
  sent.text = "enough";
  ranks[1].control.send(sent, ranks[1].joined.handle);
  EXPECT_THAT(ranks[0].control.expect<wire::Abort>().text, HasSubstr("enough"));
}

}  // namespace
}  // namespace sluice::test
