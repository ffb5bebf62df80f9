// Loss and replacement of control connections in a fault-tolerant session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/unit/gpu_client/heartbeat_monitor_fixture.h"

namespace sluice::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HeartbeatMonitorRecoveryTest : public test::HeartbeatMonitorFixture {
 protected:
  void begin_fault_tolerant(Nanos timeout = 20 * kSecond) { begin(20 * kMillisecond, timeout, true); }
  // Closes reducer i's connection and waits until the monitor has noticed.
  void lose_connection(size_t i) {
    const size_t before = gone_count();
    reducers_[i].close();
    ASSERT_TRUE(wait([&] { return gone_.size() > before; }));
    EXPECT_EQ(gone_.back().peer, i);
  }
  void replace(size_t i) {
    auto [mine, theirs] = connection(static_cast<int>(i));
    reducers_[i] = std::move(theirs);
    monitor_->replace_connection(id_, i, std::move(mine));
  }
  // Adds reducer 2, which is not committed yet.
  std::optional<size_t> add_reducer() {
    auto [mine, theirs] = connection(2);
    reducers_.push_back(std::move(theirs));
    return monitor_->add_joining_peer(id_, {.connection = std::move(mine), .heartbeat = 20 * kMillisecond});
  }
  bool has_left() {
    const std::lock_guard lock(mutex_);
    return left_;
  }
  size_t gone_count() {
    const std::lock_guard lock(mutex_);
    return gone_.size();
  }
  // Checks that no loss is reported. The notice of reducer i arrives after any loss that was seen before.
  void expect_no_loss(size_t i) {
    const size_t before = gone_count();
    ASSERT_TRUE(reducers_[i].send(wire::DrainNotice{.deadline_ms = 1}).ok());
    ASSERT_TRUE(wait([&] { return !notices_.empty(); }));
    EXPECT_EQ(gone_count(), before);
    EXPECT_EQ(losses_, 0);
  }
  // The type of the next frame that is not a heartbeat.
  wire::FrameType next_frame(size_t i) {
    for (const Nanos deadline = monotonic_now() + 10 * kSecond; monotonic_now() < deadline;) {
      ControlConnection::Frame frame;
      const Status s = reducers_[i].receive(frame);
      if (s.ok() && frame.header.type != wire::FrameType::kHeartbeat) return frame.header.type;
      if (!s.ok() && s != Errc::kWouldBlock) break;
      pollfd p{.fd = reducers_[i].fd(), .events = POLLIN, .revents = 0};
      ::poll(&p, 1, 100);
    }
    ADD_FAILURE() << "only heartbeats";
    return wire::FrameType::kHeartbeat;
  }
  static wire::Suspect suspect() { return {.reducer = 77, .code = Errc::kTimeout}; }
  void expect_suspect(int i) {
    const auto got = expect_message<wire::Suspect>(i);
    EXPECT_EQ(got.reducer, 77u);
    EXPECT_EQ(got.code, Errc::kTimeout);
  }
};

TEST_F(HeartbeatMonitorRecoveryTest, ReportsABrokenConnectionOnce) {
  begin_fault_tolerant();
  reducers_[1].shutdown();
  ASSERT_TRUE(wait([&] { return !gone_.empty(); }));
  EXPECT_EQ(gone_[0].peer, 1u);
  EXPECT_EQ(gone_[0].code, Errc::kClosed);
  EXPECT_THAT(gone_[0].text, HasSubstr("reducer 1: control connection closed"));
  // The other reducer still gets heartbeats, and the loss is not reported again.
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(expect(0, wire::FrameType::kHeartbeat).has_value());
  expect_no_loss(0);
}

TEST_F(HeartbeatMonitorRecoveryTest, ReducerIsUnresponsiveBeforeItsTimeout) {
  begin_fault_tolerant(8 * kSecond);
  EXPECT_FALSE(monitor_->is_unresponsive(id_, 0));
  EXPECT_FALSE(monitor_->is_unresponsive(id_, 1));
  lose_connection(1);
  EXPECT_TRUE(monitor_->is_unresponsive(id_, 1));
  replace(1);
  EXPECT_FALSE(monitor_->is_unresponsive(id_, 1));
  const Nanos deadline = monotonic_now() + 10 * kSecond;
  while (!monitor_->is_unresponsive(id_, 0) && monotonic_now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(monitor_->is_unresponsive(id_, 0));
  EXPECT_FALSE(monitor_->is_unresponsive(id_, 2)) << "there is no peer 2";
}

TEST_F(HeartbeatMonitorRecoveryTest, ClosesAConnectionWithAMalformedFrameAndReportsTheError) {
  begin_fault_tolerant();
  send_junk();
  ASSERT_TRUE(wait([&] { return !gone_.empty(); }));
  EXPECT_EQ(gone_[0].code, Errc::kBadMagic);
  EXPECT_THAT(gone_[0].text, HasSubstr("bad_magic"));
  EXPECT_FALSE(expect(0, wire::FrameType::kAbort).has_value()) << "the connection is closed";
  EXPECT_EQ(losses_, 0);
}

TEST_F(HeartbeatMonitorRecoveryTest, ClosesAConnectionWithAMalformedViewQuery) {
  begin_fault_tolerant();
  wire::Suspect short_body;  // 10 bytes: no VIEW_QUERY has that length
  auto frame = wire::frame_control(wire::FrameType::kViewQuery, wire::encode_body(short_body), 1, 1);
  ASSERT_EQ(::send(reducers_[0].fd(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  ASSERT_TRUE(wait([&] { return !gone_.empty(); }));
  EXPECT_EQ(losses_, 0);
  EXPECT_TRUE(queries_.empty());
}

TEST_F(HeartbeatMonitorRecoveryTest, ReportsASilentReducer) {
  begin_fault_tolerant(150 * kMillisecond);
  ASSERT_TRUE(wait([&] { return gone_.size() == 2; }));
  EXPECT_EQ(gone_[0].code, Errc::kTimeout);
  EXPECT_EQ(gone_[1].code, Errc::kTimeout);
  EXPECT_THAT(gone_[0].text, HasSubstr("no heartbeat for 150 ms"));
  EXPECT_EQ(losses_, 0);
}

TEST_F(HeartbeatMonitorRecoveryTest, ForwardsViewChanges) {
  begin_fault_tolerant();
  wire::ViewQuery query;
  query.version = 2;
  query.removed = {4, 9};
  ASSERT_TRUE(reducers_[1].send(query).ok());
  ASSERT_TRUE(reducers_[1].send(wire::ViewCommit{.version = 2, .view_hash = 3, .base_chunk = 4}).ok());
  ASSERT_TRUE(reducers_[0].send(wire::DrainNotice{.deadline_ms = 25'000}).ok());
  ASSERT_TRUE(wait([&] { return !queries_.empty() && !commits_.empty() && !notices_.empty(); }));
  EXPECT_EQ(queries_[0].first, 1u);
  EXPECT_THAT(queries_[0].second.removed, ElementsAre(4, 9));
  EXPECT_EQ(commits_[0].first, 1u);
  EXPECT_EQ(commits_[0].second.base_chunk, 4u);
  EXPECT_EQ(notices_[0].first, 0u);
  EXPECT_EQ(notices_[0].second.deadline_ms, 25'000u);
  EXPECT_TRUE(gone_.empty());
}

TEST_F(HeartbeatMonitorRecoveryTest, RejectsViewChangesWithoutFaultTolerance) {
  begin();
  ASSERT_TRUE(reducers_[1].send(wire::ViewCommit{}).ok());
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kUnexpectedMessage);
  EXPECT_TRUE(commits_.empty());
  EXPECT_TRUE(gone_.empty());
}

TEST_F(HeartbeatMonitorRecoveryTest, AbortEndsTheSession) {
  begin_fault_tolerant();
  wire::Abort abort;
  abort.code = Errc::kMismatch;
  abort.text = "ranks disagree";
  ASSERT_TRUE(reducers_[0].send(abort).ok());
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kMismatch);
  EXPECT_TRUE(expect(1, wire::FrameType::kAbort).has_value());
  EXPECT_TRUE(gone_.empty());
}

TEST_F(HeartbeatMonitorRecoveryTest, SendsToOneOrToAllConnectedReducers) {
  begin_fault_tolerant();
  monitor_->send(id_, 1, suspect());
  expect_suspect(1);
  lose_connection(0);
  monitor_->send_all(id_, suspect());
  monitor_->send(id_, 0, suspect());  // not sent: no connection
  monitor_->send(id_, 2, suspect());
  monitor_->send(id_ + 1, 0, suspect());
  expect_suspect(1);
  replace(0);
  monitor_->send_all(id_, suspect());
  expect_suspect(0);
}

TEST_F(HeartbeatMonitorRecoveryTest, UsesTheNewConnection) {
  begin_fault_tolerant();
  lose_connection(0);
  replace(0);
  EXPECT_TRUE(expect(0, wire::FrameType::kHeartbeat).has_value());
  report_waiting(0, 1, {4}, 50);
  ASSERT_TRUE(wait([&] { return waiting_.missing_ranks == 1; }));
  lose_connection(0);
  EXPECT_EQ(gone_count(), 2u) << "once for each connection";
}

TEST_F(HeartbeatMonitorRecoveryTest, ReplacesAnOpenConnection) {
  begin_fault_tolerant();
  ControlConnection old = std::move(reducers_[0]);
  replace(0);
  monitor_->send(id_, 0, suspect());
  expect_suspect(0);
  old.close();
  expect_no_loss(0);
}

TEST_F(HeartbeatMonitorRecoveryTest, ReportsTheWaitingStatusOfConnectedReducersOnly) {
  begin_fault_tolerant();
  report_waiting(1, 2, {5, 6}, 700);
  ASSERT_TRUE(wait([&] { return waiting_.waited_ms == 700; }));
  report_waiting(0, 1, {5, 6}, 50);
  reducers_[1].close();
  ASSERT_TRUE(wait([&] { return waiting_.waited_ms == 50; }));
  EXPECT_EQ(waiting_.missing_ranks, 1u);
}

TEST_F(HeartbeatMonitorRecoveryTest, SendsLeaveAgainOnANewConnection) {
  begin_fault_tolerant();
  monitor_->leave(id_);
  ASSERT_TRUE(expect(0, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(expect(1, wire::FrameType::kLeave).has_value());
  lose_connection(0);
  ASSERT_TRUE(reducers_[1].send(wire::LeaveAck{}).ok());
  ASSERT_TRUE(reducers_[1].send(wire::DrainNotice{}).ok());
  ASSERT_TRUE(
      wait([&] { return !notices_.empty(); }));  // so the acknowledgement sent before it was received too
  EXPECT_FALSE(has_left()) << "a disconnected reducer has not acknowledged";
  replace(0);
  acknowledge_leave(0);
  EXPECT_TRUE(wait([&] { return left_; }));
}

TEST_F(HeartbeatMonitorRecoveryTest, DoesNotReportALossAfterTheAcknowledgement) {
  begin_fault_tolerant();
  monitor_->leave(id_);
  acknowledge_leave(1);
  reducers_[1].close();
  acknowledge_leave(0);
  ASSERT_TRUE(wait([&] { return left_; }));
  EXPECT_EQ(gone_count(), 0u);
}

TEST_F(HeartbeatMonitorRecoveryTest, DoesNotSendLeaveAgainAfterItsAcknowledgement) {
  begin_fault_tolerant();
  monitor_->leave(id_);
  acknowledge_leave(0);
  ASSERT_TRUE(reducers_[0].send(wire::DrainNotice{}).ok());
  ASSERT_TRUE(wait([&] { return !notices_.empty(); }));
  replace(0);
  monitor_->send(id_, 0, suspect());
  EXPECT_EQ(next_frame(0), wire::FrameType::kSuspect);
}

TEST_F(HeartbeatMonitorRecoveryTest, SendsLeaveToAnAddedReducerWhenItIsCommitted) {
  begin_fault_tolerant();
  const auto added = add_reducer();
  ASSERT_TRUE(added.has_value());
  monitor_->leave(id_);
  monitor_->commit_peer(id_, *added, {.incarnation = 5});
  EXPECT_EQ(next_frame(2), wire::FrameType::kCommit);
  EXPECT_EQ(next_frame(2), wire::FrameType::kLeave);
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(reducers_[i].send(wire::LeaveAck{}).ok());
  ASSERT_TRUE(reducers_[0].send(wire::DrainNotice{}).ok());
  ASSERT_TRUE(wait([&] { return !notices_.empty(); }));
  EXPECT_FALSE(has_left());
  ASSERT_TRUE(reducers_[2].send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
}

TEST_F(HeartbeatMonitorRecoveryTest, DoesNotWaitForAnUncommittedReducer) {
  begin_fault_tolerant();
  ASSERT_TRUE(add_reducer().has_value());
  monitor_->leave(id_);
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(reducers_[i].send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
}

TEST_F(HeartbeatMonitorRecoveryTest, DroppedReducerNeedNotAcknowledge) {
  begin_fault_tolerant();
  monitor_->drop(id_, 1);
  EXPECT_FALSE(expect(1, wire::FrameType::kLeave).has_value()) << "closed";
  monitor_->leave(id_);
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
  EXPECT_EQ(gone_count(), 0u);
}

TEST_F(HeartbeatMonitorRecoveryTest, HasLeftWhenTheLastAwaitedReducerIsDropped) {
  begin_fault_tolerant();
  monitor_->leave(id_);
  acknowledge_leave(0);
  lose_connection(1);
  monitor_->drop(id_, 1);
  EXPECT_TRUE(wait([&] { return left_; }));
}

TEST_F(HeartbeatMonitorRecoveryTest, DroppedReducerCannotBeReplaced) {
  begin_fault_tolerant();
  monitor_->drop(id_, 1);
  replace(1);
  EXPECT_FALSE(expect(1, wire::FrameType::kHeartbeat).has_value()) << "closed";
  expect_no_loss(0);
}

TEST_F(HeartbeatMonitorRecoveryTest, MonitorsAnAddedReducer) {
  begin_fault_tolerant();
  ASSERT_EQ(add_reducer(), 2u);
  monitor_->send(id_, 2, wire::Commit{.incarnation = 99});
  EXPECT_TRUE(expect(2, wire::FrameType::kCommit).has_value());
  EXPECT_TRUE(expect(2, wire::FrameType::kHeartbeat).has_value());
  ASSERT_TRUE(reducers_[2].send(wire::ViewCommit{.version = 1}).ok());
  ASSERT_TRUE(wait([&] { return !commits_.empty(); }));
  EXPECT_EQ(commits_[0].first, 2u);
  lose_connection(2);
}

TEST_F(HeartbeatMonitorRecoveryTest, DropsTheConnectionOfAReducerThatDoesNotRead) {
  begin_fault_tolerant();
  wire::ViewKnown large;
  large.addresses = std::string(wire::kMaxAddresses, 'a');
  for (int i = 0; i < 1000 && gone_count() == 0; ++i) monitor_->send(id_, 1, large);
  ASSERT_TRUE(wait([&] { return !gone_.empty(); }));
  EXPECT_EQ(gone_[0].peer, 1u);
  EXPECT_EQ(gone_[0].code, Errc::kReset);
  expect_no_loss(0);
}

TEST_F(HeartbeatMonitorRecoveryTest, HasNoEffectAfterTheEnd) {
  begin_fault_tolerant();
  monitor_->abort(id_, Errc::kOpTimeout, 1, "over");
  EXPECT_TRUE(expect(0, wire::FrameType::kAbort).has_value());
  replace(0);
  EXPECT_FALSE(expect(0, wire::FrameType::kHeartbeat).has_value()) << "closed";
  EXPECT_FALSE(add_reducer().has_value());
  monitor_->drop(id_, 1);
  monitor_->send_all(id_, suspect());
  EXPECT_EQ(gone_count(), 0u);
}

}  // namespace
}  // namespace sluice::engine
