// Losses that a session survives, at the reducer's control side: connections that come back, ranks that do
// not, the reducer that does not arbitrate. What happens on lanes is tests/unit/reducer's.
#include <future>

#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

constexpr uint64_t kOther = 7;  // a reducer that is not there

class ReducerSurvives : public ReducerTest {
 protected:
  // Ranks that are not heard are no matter but where a test says so: nothing here beats.
  static reducer::ReducerOptions patient() {
    auto o = short_deadlines();
    o.peer_timeout = 60 * kSecond;
    o.absence_timeout = 60 * kSecond;
    return o;
  }
  static Shape surviving(uint32_t ranks) {
    return {.session = session_id(1), .ranks = ranks, .features = wire::kFeaturesSurvive};
  }
  // The reducer is the second of its list.
  static Shape elsewhere(uint32_t ranks) {
    Shape shape = surviving(ranks);
    shape.reducers_before = {kOther};
    return shape;
  }
  // What ends the session, as one hears it that goes on beating.
  static wire::Abort abort_of_one_that_beats(ScriptedMember& rank) {
    wire::Abort abort;
    for (;;) {
      rank.control.send(wire::Heartbeat{}, rank.joined.handle);
      const auto frame = rank.control.receive();
      if (!frame) throw std::runtime_error("the connection ended without a word");
      if (frame->header.type != wire::FrameType::kAbort) continue;
      EXPECT_TRUE(wire::decode_body(std::span<const std::byte>(frame->payload), abort).ok());
      return abort;
    }
  }
  static void resume_lane(ScriptedMember& rank) {
    rank.lanes[0] = rank.ask_for_lane(0);
    (void)rank.lanes[0].expect<wire::Attached>();
    rank.lanes[0].send(wire::Resume{.incarnation = rank.incarnation, .view_hash = 42}, rank.joined.handle);
    (void)rank.lanes[0].expect<wire::ResumeAck>();
  }
  // As often as is borne.
  void break_by_bad_frames(ScriptedMember& rank) const {
    ASSERT_TRUE(eventually_active());
    for (int i = 0; i < 16; ++i) {
      if (i > 0) resume_lane(rank);
      EXPECT_TRUE(eventually_absent(0));
      rank.lanes[0].send_text(std::string(200, 'x'));
      EXPECT_TRUE(rank.lanes[0].closed_within(10 * kSecond));
      EXPECT_TRUE(i == 15 || eventually_absent(1));
    }
  }
  // A loss before it has heard of the commit ends the join.
  [[nodiscard]] bool eventually_active() const {
    return eventually([](const auto& j) { return j["session_list"][0]["state"] == "active"; });
  }
  [[nodiscard]] bool eventually_absent(uint64_t count) const {
    return eventually([=](const auto& j) {
      const auto& sessions = j["session_list"];
      return !sessions.empty() && sessions[0]["absent_ranks"] == count;
    });
  }
};

TEST_F(ReducerSurvives, RefusesARankThatDiffersInThat) {
  start();
  for (const bool first_survives : {true, false}) {
    Shape shape = surviving(2);
    shape.session = session_id(first_survives ? 10 : 11);
    shape.features = first_survives ? wire::kFeaturesSurvive : 0;
    ScriptedMember first(port(), shape);
    first.join();
    first.expect_joined();
    shape.rank = 1;
    shape.features = first_survives ? 0 : wire::kFeaturesSurvive;
    ScriptedMember second(port(), shape);
    second.join();
    const auto refused = second.control.expect<wire::Refused>();
    EXPECT_EQ(refused.code, Errc::kMismatch);
    const std::string yes = first_survives ? "rank 0" : "rank 1";
    const std::string no = first_survives ? "rank 1" : "rank 0";
    EXPECT_THAT(refused.text, AllOf(HasSubstr(yes + " (127.0.0.1:"), HasSubstr("survives losses, " + no)));
    EXPECT_EQ(first.control.expect<wire::Verdict>().reason.text, refused.text);
  }
  for (const uint64_t half : {wire::kFeatureResume, wire::kFeatureViewChange}) {
    Shape shape = surviving(1);
    shape.session = session_id(12);
    shape.features = half;
    ScriptedMember rank(port(), shape);
    rank.join();
    EXPECT_EQ(rank.control.expect<wire::Refused>().code, Errc::kBadField);
  }
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerSurvives, TakesUpAControlConnectionThatBroke) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
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

TEST_F(ReducerSurvives, ReplacesAControlConnectionThatItHasNotMissed) {
  start(patient());
  auto ranks = begin_session(port(), surviving(1));
  auto old = ranks[0].resume();
  EXPECT_TRUE(old.closed_within(10 * kSecond));
  EXPECT_EQ(status()["session_list"][0]["absent_ranks"], 0);
  expect_sums(ranks, 0);
  ranks[0].leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerSurvives, RefusesToResumeWhatItDoesNotRun) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  const auto refused = [&](auto change, wire::Purpose purpose = wire::Purpose::kControl) {
    wire::Hello hello;
    hello.purpose = purpose;
    hello.session = session_id(1);
    hello.ranks = 2;
    hello.features = wire::kFeaturesSurvive;
    hello.incarnation = ranks[0].incarnation;
    wire::Attach attach{.handle = ranks[0].joined.handle, .view_hash = 42, .mac = {}};
    change(hello, attach);
    ScriptedConnection c(port());
    c.greet(hello);
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
  // Who comes as if anew is not taken for the rank that is there, nor for one that broke.
  for (const bool broken : {false, true}) {
    if (broken) {
      ranks[0].control.close();
      EXPECT_TRUE(eventually_absent(1));
    }
    ScriptedMember again(port(), surviving(2));
    again.join();
    EXPECT_EQ(again.control.expect<wire::Refused>().code, Errc::kRankTaken);
  }
  // Nor does a client that knows nothing of this get further than before.
  ScriptedConnection old(port());
  wire::Hello hello;
  hello.session = session_id(1);
  hello.ranks = 2;
  hello.incarnation = ranks[0].incarnation;
  old.greet(hello);
  old.send(wire::Attach{.handle = ranks[0].joined.handle, .view_hash = 42, .mac = {}});
  EXPECT_TRUE(old.closed_within(10 * kSecond));
  EXPECT_EQ(status()["resumes"]["control"], 0);
}

TEST_F(ReducerSurvives, ResumesNothingOfASessionThatDoesNotSurvive) {
  start(patient());
  Shape shape = surviving(2);
  shape.features = 0;
  auto ranks = begin_session(port(), shape);
  wire::Hello hello;
  hello.session = session_id(1);
  hello.ranks = 2;
  hello.features = wire::kFeaturesSurvive;
  hello.incarnation = ranks[0].incarnation;
  ScriptedConnection c(port());
  c.greet(hello);
  c.send(wire::Attach{.handle = ranks[0].joined.handle, .view_hash = 42, .mac = {}});
  EXPECT_EQ(c.expect<wire::Refused>().code, Errc::kUnknownSession);
  ranks[0].control.send(wire::Suspect{.reducer = kOther}, ranks[0].joined.handle);
  EXPECT_EQ(ranks[1].control.expect<wire::Abort>().code, Errc::kUnexpectedMessage);
}

TEST_F(ReducerSurvives, SaysLeaveAckAgainToOneThatMissedIt) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  expect_sums(ranks, 0);
  ranks[0].leave();
  (void)ranks[0].resume();
  ranks[0].leave();
  ranks[1].leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerSurvives, LetsARankGoWhenNobodyCanMissWhatItHolds) {
  start(patient());
  auto ranks = begin_session(port(), surviving(3));
  const auto say_leave = [](ScriptedMember& m, uint64_t finished) {
    m.control.send(wire::Leave{.finished = finished}, m.joined.handle);
  };
  const auto finished = [](ScriptedMember& m, uint64_t chunks) {
    m.control.send(wire::Heartbeat{.missing = {}, .finished = chunks}, m.joined.handle);
  };
  const auto asked = [](ScriptedMember& m) {
    while (m.control.expect<wire::Heartbeat>().answer == 0) {
    }
  };
  finished(ranks[1], 2);
  say_leave(ranks[0], 2);
  asked(ranks[2]);
  asked(ranks[2]);
  finished(ranks[2], 1);
  asked(ranks[2]);
  finished(ranks[2], 2);
  (void)ranks[0].control.expect<wire::LeaveAck>();
  // Rank 2 lacks a result of rank 1's, and leaves too: it gives it up.
  say_leave(ranks[1], 3);
  asked(ranks[2]);
  say_leave(ranks[2], 2);
  (void)ranks[1].control.expect<wire::LeaveAck>();
  (void)ranks[2].control.expect<wire::LeaveAck>();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerSurvives, ALeaveStandsWhenTheViewChanges) {
  start(patient());
  Shape shape = surviving(2);
  shape.more_reducers = {kOther};
  auto ranks = begin_session(port(), shape);
  ranks[0].control.send(wire::Leave{.finished = 2}, ranks[0].joined.handle);
  ranks[1].control.send(wire::Suspect{.reducer = kOther}, ranks[1].joined.handle);
  for (auto& r : ranks) {
    const auto query = r.control.expect<wire::ViewQuery>();
    r.control.send(wire::ViewAnswer{.version = query.version, .view_hash = 77, .first_unfinished_chunk = 1},
                   r.joined.handle);
  }
  for (auto& r : ranks) EXPECT_EQ(r.control.expect<wire::ViewCommit>().base_chunk, 1u);
  ranks[1].control.send(wire::Heartbeat{.missing = {}, .finished = 2}, ranks[1].joined.handle);
  (void)ranks[0].control.expect<wire::LeaveAck>();
}

TEST_F(ReducerSurvives, TakesLaneConnectionsOfASessionThatRuns) {
  start(patient());
  ScriptedMember rank(port(), surviving(1));
  rank.join();
  rank.expect_joined();
  rank.vote_yes();
  rank.commit();
  EXPECT_TRUE(eventually([](const auto& j) { return j["session_list"][0]["state"] == "active"; }));
  rank.attach();
  rank.lanes[0].send(wire::Commit{.incarnation = rank.incarnation}, rank.joined.handle);
  rank.contribute(0, {1, 2});
  EXPECT_EQ(rank.result(0), (std::vector<float>{1, 2}));
}

TEST_F(ReducerSurvives, ALaneConnectionTakesThePlaceOfTheOneBefore) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  expect_sums(ranks, 0);
  for (uint64_t held = 1; held <= 2; ++held) {
    // First one that the reducer has not missed, then one that it has.
    ScriptedConnection old = std::move(ranks[1].lanes[0]);
    if (held == 2) {
      old.close();
      EXPECT_TRUE(eventually_absent(1));
    }
    ranks[1].lanes[0] = ranks[1].ask_for_lane(0);
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

TEST_F(ReducerSurvives, ALaneThatComesAgainBeforeTheCommitIsToldToComeLater) {
  start(patient());
  ScriptedMember rank(port(), surviving(2));
  rank.join();
  rank.expect_joined();
  rank.attach();
  EXPECT_EQ(rank.ask_for_lane(0).expect<wire::Refused>().code, Errc::kRankTaken);
  rank.incarnation = 99;  // as if it had the verdict
  EXPECT_EQ(rank.ask_for_lane(0).expect<wire::Refused>().code, Errc::kUnknownSession);
}

TEST_F(ReducerSurvives, ALostRankIsNamedToTheOthersByTheArbiter) {
  auto options = patient();
  options.absence_timeout = 300 * kMillisecond;
  start(options);
  for (const bool lane_only : {false, true}) {
    auto ranks = begin_session(port(), surviving(3));
    expect_sums(ranks, 0);
    ranks[1].lanes.clear();
    if (!lane_only) ranks[1].control.close();
    for (const size_t r : {size_t{0}, size_t{2}}) {
      const auto abort = abort_of_one_that_beats(ranks[r]);
      EXPECT_EQ(abort.code, Errc::kPeerLost);
      EXPECT_EQ(abort.rank, 1u);
      EXPECT_THAT(abort.text, AllOf(HasSubstr("rank 1 (127.0.0.1:"), HasSubstr("no connection for ")));
    }
    ranks.clear();
    EXPECT_TRUE(eventually_empty());
  }
}

TEST_F(ReducerSurvives, ARankThatHasLeftIsNotAbsent) {
  auto options = patient();
  options.absence_timeout = 200 * kMillisecond;
  start(options);
  auto ranks = begin_session(port(), surviving(2));
  ranks[0].leave();
  ranks[0].control.close();
  const auto uptime = [this] { return status()["uptime_seconds"].get<double>(); };
  const double left = uptime();
  EXPECT_TRUE(
      eventually([&](const auto& j) { return j["uptime_seconds"].template get<double>() > left + 0.5; }));
  ranks[1].leave();
  EXPECT_TRUE(eventually([](const auto& j) { return j["sessions"]["completed"] == 1; }));
}

TEST_F(ReducerSurvives, OneThatIsNotTheArbiterLeavesALostRankToIt) {
  auto options = patient();
  options.absence_timeout = 200 * kMillisecond;
  start(options);
  auto ranks = begin_session(port(), elsewhere(2));
  ranks[1].lanes.clear();
  ranks[1].control.close();
  EXPECT_TRUE(eventually_absent(1));
  const double lost = status()["uptime_seconds"].get<double>();
  EXPECT_TRUE(
      eventually([&](const auto& j) { return j["uptime_seconds"].template get<double>() > lost + 0.5; }));
  EXPECT_EQ(status()["sessions"]["open"], 1);
  (void)ranks[1].resume();
  // Without any rank it forgets the session.
  for (auto& r : ranks) {
    r.lanes.clear();
    r.control.close();
  }
  EXPECT_TRUE(eventually_empty());
  EXPECT_EQ(status()["sessions"]["failed"], 1);
}

TEST_F(ReducerSurvives, OneThatIsNotTheArbiterCutsOffASilentRank) {
  auto options = patient();
  options.peer_timeout = 300 * kMillisecond;
  start(options);
  auto ranks = begin_session(port(), elsewhere(2));
  EXPECT_TRUE(ranks[1].control.closed_within(10 * kSecond));
  EXPECT_TRUE(ranks[1].lanes[0].closed_within(10 * kSecond));
  EXPECT_EQ(status()["sessions"]["open"], 1);
  EXPECT_TRUE(eventually_absent(2));
  (void)ranks[1].resume();
  EXPECT_EQ(status()["resumes"]["control"], 1);
}

// It stands still, or the path between is what is silent; who stays away is lost.
TEST_F(ReducerSurvives, TheArbiterCutsOffASilentRankAndLosesItOnlyWhenItStaysAway) {
  auto options = patient();
  options.peer_timeout = 2 * kSecond;
  options.absence_timeout = kSecond;
  options.heartbeat = 50 * kMillisecond;  // what wakes the one that beats
  start(options);
  auto ranks = begin_session(port(), surviving(2));
  auto ended = std::async(std::launch::async, [&] { return abort_of_one_that_beats(ranks[0]); });
  for (const bool comes_back : {true, false}) {
    EXPECT_TRUE(ranks[1].control.closed_within(10 * kSecond));
    EXPECT_TRUE(ranks[1].lanes[0].closed_within(10 * kSecond));
    if (!comes_back) break;
    (void)ranks[1].resume();
    resume_lane(ranks[1]);
    EXPECT_TRUE(eventually_absent(0));
  }
  const auto abort = ended.get();
  EXPECT_EQ(abort.code, Errc::kPeerLost);
  EXPECT_EQ(abort.rank, 1u);
  EXPECT_THAT(abort.text, AllOf(HasSubstr("no connection for "), HasSubstr("not heard for ")));
}

// What the ranks' going on without this reducer waits for may be the rank that stands still.
TEST_F(ReducerSurvives, ARankThatStandsStillIsNoWitnessThatAnotherIsLost) {
  auto options = patient();
  options.heartbeat = 50 * kMillisecond;
  options.absence_timeout = kSecond;
  options.peer_timeout = 2 * kSecond;
  start(options);
  auto ranks = begin_session(port(), surviving(2));
  ASSERT_TRUE(eventually_active());
  ranks[1].lanes.clear();
  ranks[1].control.close();
  for (;;) {
    const auto frame = ranks[0].control.receive();
    if (!frame) break;
    EXPECT_EQ(frame->header.type, wire::FrameType::kHeartbeat) << to_string(frame->header.type);
  }
  EXPECT_TRUE(eventually_empty());
}

// Whose fault damaged frames are cannot be seen at one end.
TEST_F(ReducerSurvives, ARankOfManyBadFramesMustDoWithoutThisReducer) {
  start(patient());
  auto ranks = begin_session(port(), elsewhere(2));
  break_by_bad_frames(ranks[1]);
  EXPECT_TRUE(ranks[1].control.closed_within(10 * kSecond));
  (void)ranks[1].ask_to_resume();
  auto lane = ranks[1].ask_for_lane(0);
  for (auto* const connection : {&ranks[1].control, &lane}) {
    const auto refused = connection->expect<wire::Refused>();
    EXPECT_EQ(refused.code, Errc::kUnknownSession);
    EXPECT_THAT(refused.text, HasSubstr("too many bad frames"));
  }
  // The others go on.
  EXPECT_EQ(status()["sessions"]["open"], 1);
  (void)ranks[0].resume();
}

TEST_F(ReducerSurvives, ARankOfManyBadFramesIsLostWhereThereIsNoOtherReducer) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  break_by_bad_frames(ranks[1]);
  const auto abort = abort_of_one_that_beats(ranks[0]);
  EXPECT_EQ(abort.code, Errc::kPeerLost);
  EXPECT_EQ(abort.rank, 1u);
  EXPECT_THAT(abort.text, AllOf(HasSubstr("rank 1"), HasSubstr("over and over, bad_magic")));
}

// What swallows the packets of one connection is seen by nobody else.
TEST_F(ReducerSurvives, ALaneLostToADeadlineEndsTheRanksOtherConnections) {
  auto options = patient();
  options.frame_timeout = 200 * kMillisecond;
  start(options);
  auto ranks = begin_session(port(), elsewhere(2));
  ASSERT_TRUE(eventually_active());
  wire::FrameHeader h;
  std::array<std::byte, wire::kHeaderBytes> bytes{};
  wire::encode_header(h, {}, bytes);
  ranks[1].lanes[0].send_bytes(std::span(bytes).first(20));  // and no more
  EXPECT_TRUE(ranks[1].lanes[0].closed_within(10 * kSecond));
  EXPECT_TRUE(ranks[1].control.closed_within(10 * kSecond));
  (void)ranks[1].resume();
  EXPECT_EQ(status()["session_list"][0]["absent_ranks"], 1);
}

// It may have been cut off from them, or have stood still: they may go on without it.
TEST_F(ReducerSurvives, TheArbiterLosesNobodyWhereAllAreSilent) {
  auto options = patient();
  options.peer_timeout = 300 * kMillisecond;
  options.absence_timeout = 300 * kMillisecond;
  start(options);
  auto ranks = begin_session(port(), surviving(2));
  for (auto& r : ranks) {
    EXPECT_TRUE(r.control.closed_within(10 * kSecond));  // without a word
    EXPECT_TRUE(r.lanes[0].closed_within(10 * kSecond));
  }
  EXPECT_TRUE(eventually_empty());
  ScriptedConnection c(port());
  wire::Hello hello;
  hello.session = session_id(1);
  hello.purpose = wire::Purpose::kStatus;
  EXPECT_NE(c.greet(hello).reducer, reducer->id()) << "they have removed it";
}

TEST_F(ReducerSurvives, ABadFrameCostsItsConnectionOnly) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
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

TEST_F(ReducerSurvives, ALossBeforeTheCommitEndsTheJoinAsEver) {
  start(patient());
  std::vector<ScriptedMember> ranks;
  for (uint32_t r = 0; r < 2; ++r) {
    Shape shape = surviving(2);
    shape.rank = r;
    ranks.emplace_back(port(), shape);
    ranks.back().join();
    ranks.back().expect_joined();
  }
  ranks[1].control.close();
  const auto verdict = ranks[0].control.expect<wire::Verdict>();
  EXPECT_EQ(verdict.commit, 0);
  EXPECT_EQ(verdict.reason.code, Errc::kPeerLost);
  ranks.clear();
  EXPECT_TRUE(eventually_empty());
}

TEST_F(ReducerSurvives, AnAbortStillEndsIt) {
  start(patient());
  auto ranks = begin_session(port(), surviving(2));
  wire::Abort why;
  why.code = Errc::kAborted;
  why.text = "enough";
  ranks[1].control.send(why, ranks[1].joined.handle);
  EXPECT_THAT(ranks[0].control.expect<wire::Abort>().text, HasSubstr("enough"));
}

}  // namespace
}  // namespace sluice::test
