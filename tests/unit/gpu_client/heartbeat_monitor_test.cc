#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/support/fake_endpoint.h"
#include "tests/unit/gpu_client/heartbeat_monitor_fixture.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using HeartbeatMonitorTest = test::HeartbeatMonitorFixture;

TEST_F(HeartbeatMonitorTest, SendsHeartbeatsToEveryReducer) {
  begin();
  for (int i = 0; i < 2; ++i) {
    uint64_t last = 0;
    for (int n = 0; n < 3; ++n) {
      const auto beat = expect_message<wire::Heartbeat>(i);
      EXPECT_EQ(beat.count, ++last);
    }
  }
}

TEST_F(HeartbeatMonitorTest, ReportsTheRanksThatAreWaitedForLongest) {
  begin();
  report_waiting(1, 2, {5, 6}, 700);
  ASSERT_TRUE(wait([&] { return waiting_.missing_ranks == 2; }));
  EXPECT_EQ(waiting_.first_rank, 5u);
  EXPECT_EQ(waiting_.waited_ms, 700u);
  ASSERT_TRUE(reducers_[1].send(wire::Heartbeat{}).ok());
  EXPECT_TRUE(wait([&] { return waiting_.missing_ranks == 0; }));
}

TEST_F(HeartbeatMonitorTest, SendsWhatTheNetworkDoesToTheLanes) {
  paths_ = std::make_shared<transport::LanePaths>(2);
  begin();
  ::sluice::test::FakeEndpoint ep;
  ep.path = {.packets = 40, .lost_packets = 2};
  for (transport::PathMonitor& path : *paths_) (void)path.sample(ep, monotonic_now());
  for (wire::Heartbeat beat; beat.packets != 80u; beat = expect_message<wire::Heartbeat>(0)) {
    ASSERT_LT(beat.count, 500u);
  }
  const auto beat = expect_message<wire::Heartbeat>(0);
  EXPECT_EQ(beat.lost_packets, 4u);
  EXPECT_EQ(beat.stalled_ms, 0u);
}

TEST_F(HeartbeatMonitorTest, NamesTheReducerThatDoesNotAcknowledge) {
  paths_ = std::make_shared<transport::LanePaths>(1);
  begin(200 * kMillisecond);
  // Reducer 1 sends no heartbeat, so its host may be gone. It counts as present for two intervals in which
  // this process runs: by its fourth heartbeat, three have passed, whatever the machine does.
  for (int n = 0; n < 4; ++n) expect_message<wire::Heartbeat>(1);
  ::sluice::test::FakeEndpoint ep;
  ep.path = {.has_unacked = true, .mtu = 9000};
  (void)paths_->front().sample(ep, monotonic_now() - 6 * kSecond);
  (void)paths_->front().sample(ep, monotonic_now());
  for (const Nanos deadline = monotonic_now() + 10 * kSecond; monotonic_now() < deadline;) {
    ASSERT_TRUE(reducers_[0].send(wire::Heartbeat{}).ok());
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return !path_warnings_.empty(); }))
      break;
  }
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(path_warnings_.size(), 1u);
  EXPECT_THAT(path_warnings_[0],
              MatchesRegex("no byte acknowledged by reducer 0 for [0-9]+ s, but its heartbeats arrive: check "
                           "the MTU of the path \\(this host sends packets of up to 9000 bytes\\)"));
}

TEST_F(HeartbeatMonitorTest, NamesTheReducerWhoseDataDoesNotArrive) {
  paths_ = std::make_shared<transport::LanePaths>(1);
  begin();
  wire::Heartbeat beat;
  beat.packets = 0, beat.lost_packets = 0, beat.stalled_ms = 6000;
  for (int n = 0; n < 3; ++n) ASSERT_TRUE(reducers_[1].send(beat).ok());
  ASSERT_TRUE(wait([&] { return !path_warnings_.empty(); }));
  EXPECT_THAT(path_warnings_[0], HasSubstr("reducer 1 sends data that does not arrive, for 6 s"));
}

TEST_F(HeartbeatMonitorTest, EndsTheSessionWhenAReducerIsSilent) {
  begin(20 * kMillisecond, 2 * kSecond);
  // Reducer 0 sends heartbeats, reducer 1 does not.
  for (const Nanos deadline = monotonic_now() + 10 * kSecond; monotonic_now() < deadline;) {
    ASSERT_TRUE(reducers_[0].send(wire::Heartbeat{}).ok());
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return losses_ > 0; })) break;
  }
  ASSERT_EQ(losses_, 1);
  EXPECT_EQ(code_, Errc::kReducerLost);
  EXPECT_EQ(text_, "reducer 1 lost: no heartbeat for 2000 ms");
  const auto abort = expect_message<wire::Abort>(0);
  EXPECT_EQ(abort.code, Errc::kReducerLost);
  EXPECT_EQ(abort.text, text_);
}

TEST_F(HeartbeatMonitorTest, ExtendsTheTimeoutByTheTimeForWhichItDidNotRun) {
  begin(20 * kMillisecond, 1500 * kMillisecond);
  // A paused machine: the reducers send nothing either.
  set([&] { stall_ = 2 * kSecond; });
  ASSERT_TRUE(wait([&] { return stall_ == 0 && turns_after_stall_ > 0; }));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(reducers_[static_cast<size_t>(i)].send(wire::Heartbeat{}).ok());
  }
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(losses_, 0) << text_;
}

TEST_F(HeartbeatMonitorTest, EndsTheSessionWhenAReducerCloses) {
  begin();
  reducers_[1].shutdown();
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kReducerLost);
  EXPECT_EQ(text_, "reducer 1 lost: control connection closed by the reducer");
  EXPECT_TRUE(expect(0, wire::FrameType::kAbort).has_value());
}

TEST_F(HeartbeatMonitorTest, ForwardsTheTextOfAnAbortOnce) {
  begin();
  wire::Abort abort;
  abort.code = Errc::kPeerLost;
  abort.rank = 2;
  abort.text = "rank 2 was lost";
  ASSERT_TRUE(reducers_[0].send(abort).ok());
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kPeerLost);
  EXPECT_EQ(text_, "reducer 0 ended the session: rank 2 was lost");
  const auto forwarded = expect_message<wire::Abort>(1);
  EXPECT_EQ(forwarded.text, "rank 2 was lost");
  EXPECT_EQ(forwarded.rank, 2u);
  // An ABORT from the other reducer has no further effect.
  static_cast<void>(reducers_[1].send(abort));
  EXPECT_FALSE(expect(1, wire::FrameType::kAbort).has_value()) << "the connection ends after the first ABORT";
  EXPECT_EQ(losses_, 1);
  monitor_->remove(id_);
  EXPECT_FALSE(expect(0, wire::FrameType::kAbort).has_value()) << "the sender of the ABORT gets none";
}

TEST_F(HeartbeatMonitorTest, SendsAnAbortToEveryReducer) {
  begin();
  monitor_->abort(id_, Errc::kOpTimeout, 1, "operation 3 timed out");
  for (int i = 0; i < 2; ++i) {
    const auto abort = expect_message<wire::Abort>(i);
    EXPECT_EQ(abort.code, Errc::kOpTimeout);
    EXPECT_EQ(abort.rank, 1u);
  }
  EXPECT_EQ(losses_, 0) << "abort() does not call the listener";
}

TEST_F(HeartbeatMonitorTest, ReplacesLocalErrorCodesInAborts) {
  begin();
  monitor_->abort(id_, Errc::kInternal, 1, "lost count");
  for (int i = 0; i < 2; ++i) {
    const auto abort = expect_message<wire::Abort>(i);
    EXPECT_EQ(abort.code, Errc::kAborted);
    EXPECT_EQ(abort.text, "lost count");
  }
  monitor_->remove(id_);
  reducers_.clear();
  begin();
  wire::Abort abort;
  abort.code = Errc::kInvalidArgument;
  ASSERT_TRUE(reducers_[0].send(abort).ok());
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kAborted);
}

TEST_F(HeartbeatMonitorTest, HasLeftWhenEveryReducerHasAcknowledged) {
  begin();
  monitor_->leave(id_);
  for (const int i : {0, 1}) EXPECT_TRUE(expect(i, wire::FrameType::kLeave).has_value());
  for (ControlConnection& reducer : reducers_) EXPECT_TRUE(reducer.send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
  EXPECT_EQ(losses_, 0);
}

TEST_F(HeartbeatMonitorTest, SendsTheFirstUnfinishedChunk) {
  begin(3600 * kSecond);
  ASSERT_TRUE(expect(0, wire::FrameType::kHeartbeat).has_value()) << "the first heartbeat is due at once";
  first_unfinished_ = 7;
  ASSERT_TRUE(reducers_[0].send(wire::Heartbeat{.missing = {}, .answer = 1}).ok());
  const auto beat = expect_message<wire::Heartbeat>(0);
  EXPECT_EQ(beat.finished, 7u);
  first_unfinished_ = 9;
  monitor_->leave(id_);
  const auto leave = expect_message<wire::Leave>(0);
  EXPECT_EQ(leave.finished, 9u);
}

TEST_F(HeartbeatMonitorTest, TreatsACloseWhileLeavingAsAnAcknowledgement) {
  begin();
  monitor_->leave(id_);
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  reducers_.pop_back();
  EXPECT_TRUE(wait([&] { return left_; }));
  EXPECT_EQ(losses_, 0);
}

TEST_F(HeartbeatMonitorTest, EndsTheSessionOnMalformedFrames) {
  begin();
  send_junk();
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kBadMagic);
  EXPECT_THAT(text_, HasSubstr("bad_magic"));
}

TEST_F(HeartbeatMonitorTest, ExistsOncePerProcessUntilItsLastHolderReleasesIt) {
  begin();
  auto again = HeartbeatMonitor::acquire().value();
  EXPECT_EQ(again.get(), monitor_.get());
  monitor_->remove(id_);
  const std::weak_ptr<HeartbeatMonitor> watched = monitor_;
  again.reset();
  monitor_.reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace sluice::engine
