// Control connections that end in a session that survives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/unit/gpu_client/keeper_rig.h"

namespace sluice::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KeeperSurvivalTest : public test::KeeperRig {
 protected:
  void survive(Nanos timeout = 20 * kSecond) { begin(20 * kMillisecond, timeout, true); }
  // Reducer i's connection ends, and the keeper has noticed.
  void lose_connection(size_t i) {
    const size_t before = gone_count();
    reducers_[i].close();
    ASSERT_TRUE(wait([&] { return gone_.size() > before; }));
    EXPECT_EQ(gone_.back().peer, i);
  }
  void replace(size_t i) {
    auto [mine, theirs] = connection(static_cast<int>(i));
    reducers_[i] = std::move(theirs);
    keeper_->replace(id_, i, std::move(mine));
  }
  size_t gone_count() {
    const std::lock_guard lock(mutex_);
    return gone_.size();
  }
  // Whatever the keeper had to say before this has been said once the other reducer's notice is there.
  void expect_quiet(size_t i) {
    const size_t before = gone_count();
    ASSERT_TRUE(reducers_[i].send(wire::DrainNotice{.deadline_ms = 1}).ok());
    ASSERT_TRUE(wait([&] { return !notices_.empty(); }));
    EXPECT_EQ(gone_count(), before);
    EXPECT_EQ(losses_, 0);
  }
  // The type of the next frame that is no heartbeat.
  wire::FrameType next_word(size_t i) {
    for (const Nanos deadline = monotonic_now() + 10 * kSecond; monotonic_now() < deadline;) {
      ControlLink::Frame frame;
      const Status s = reducers_[i].receive(frame);
      if (s.ok() && frame.header.type != wire::FrameType::kHeartbeat) return frame.header.type;
      if (!s.ok() && s != Errc::kWouldBlock) break;
      pollfd p{.fd = reducers_[i].fd(), .events = POLLIN, .revents = 0};
      ::poll(&p, 1, 100);
    }
    ADD_FAILURE() << "nothing but heartbeats";
    return wire::FrameType::kHeartbeat;
  }
  static wire::Suspect suspect() { return {.reducer = 77, .code = Errc::kTimeout}; }
  void expect_suspect(int i) {
    const auto body = expect(i, wire::FrameType::kSuspect);
    ASSERT_TRUE(body.has_value());
    wire::Suspect got;
    ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(*body), got).ok());
    EXPECT_EQ(got.reducer, 77u);
    EXPECT_EQ(got.code, Errc::kTimeout);
  }
};

TEST_F(KeeperSurvivalTest, TellsOfABrokenConnectionOnceAndGoesOn) {
  survive();
  reducers_[1].shutdown();
  ASSERT_TRUE(wait([&] { return !gone_.empty(); }));
  EXPECT_EQ(gone_[0].peer, 1u);
  EXPECT_EQ(gone_[0].code, Errc::kClosed);
  EXPECT_THAT(gone_[0].text, HasSubstr("reducer 1: closed"));
  // Heartbeats go on to the other one; nothing more is said of this one.
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(expect(0, wire::FrameType::kHeartbeat).has_value());
  expect_quiet(0);
}

TEST_F(KeeperSurvivalTest, MissesAReducerBeforeItsSilenceHasLastedTooLong) {
  survive(2 * kSecond);
  EXPECT_FALSE(keeper_->missed(id_, 0));
  EXPECT_FALSE(keeper_->missed(id_, 1));
  lose_connection(1);
  EXPECT_TRUE(keeper_->missed(id_, 1));
  replace(1);
  EXPECT_FALSE(keeper_->missed(id_, 1));
  const Nanos deadline = monotonic_now() + 10 * kSecond;
  while (!keeper_->missed(id_, 0) && monotonic_now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(keeper_->missed(id_, 0));
  EXPECT_FALSE(keeper_->missed(id_, 2)) << "there is none";
}

TEST_F(KeeperSurvivalTest, ClosesOnMalformedFramesAndSaysWhatWasWrong) {
  survive();
  const char junk[] = "GET / HTTP/1.1\r\nHost: reducer\r\nAccept: everything that there is\r\n\r\n";
  ASSERT_GT(::send(reducers_[0].fd(), junk, sizeof junk, 0), 64);
  ASSERT_TRUE(wait([&] { return !gone_.empty(); }));
  EXPECT_EQ(gone_[0].code, Errc::kBadMagic);
  EXPECT_THAT(gone_[0].text, HasSubstr("bad_magic"));
  EXPECT_FALSE(expect(0, wire::FrameType::kAbort).has_value()) << "the connection is closed";
  EXPECT_EQ(losses_, 0);
}

TEST_F(KeeperSurvivalTest, ClosesOnABodyThatIsNoQuery) {
  survive();
  wire::Suspect short_body;  // 10 bytes, as no VIEW_QUERY is
  auto frame = wire::frame_control(wire::FrameType::kViewQuery, wire::encode_body(short_body), 1, 1);
  ASSERT_EQ(::send(reducers_[0].fd(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  ASSERT_TRUE(wait([&] { return !gone_.empty(); }));
  EXPECT_EQ(losses_, 0);
  EXPECT_TRUE(queries_.empty());
}

TEST_F(KeeperSurvivalTest, TellsOfSilence) {
  survive(150 * kMillisecond);
  ASSERT_TRUE(wait([&] { return gone_.size() == 2; }));
  EXPECT_EQ(gone_[0].code, Errc::kTimeout);
  EXPECT_EQ(gone_[1].code, Errc::kTimeout);
  EXPECT_THAT(gone_[0].text, HasSubstr("silent for 150 ms"));
  EXPECT_EQ(losses_, 0);
}

TEST_F(KeeperSurvivalTest, HandsViewChangesOn) {
  survive();
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

TEST_F(KeeperSurvivalTest, TakesNoViewChangeWhereLossesAreNotSurvived) {
  begin();
  ASSERT_TRUE(reducers_[1].send(wire::ViewCommit{}).ok());
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kUnexpectedMessage);
  EXPECT_TRUE(commits_.empty());
  EXPECT_TRUE(gone_.empty());
}

TEST_F(KeeperSurvivalTest, AnAbortStillEndsTheSession) {
  survive();
  wire::Abort abort;
  abort.code = Errc::kMismatch;
  abort.text = "ranks disagree";
  ASSERT_TRUE(reducers_[0].send(abort).ok());
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kMismatch);
  EXPECT_TRUE(expect(1, wire::FrameType::kAbort).has_value());
  EXPECT_TRUE(gone_.empty());
}

TEST_F(KeeperSurvivalTest, SaysToOneAndToAllThatAreThere) {
  survive();
  keeper_->send(id_, 1, suspect());
  expect_suspect(1);
  lose_connection(0);
  keeper_->send_all(id_, suspect());
  keeper_->send(id_, 0, suspect());  // goes nowhere
  keeper_->send(id_, 2, suspect());
  keeper_->send(id_ + 1, 0, suspect());
  expect_suspect(1);
  replace(0);
  keeper_->send_all(id_, suspect());
  expect_suspect(0);
}

TEST_F(KeeperSurvivalTest, GoesOnOverTheNewConnection) {
  survive();
  lose_connection(0);
  replace(0);
  EXPECT_TRUE(expect(0, wire::FrameType::kHeartbeat).has_value());
  wire::Heartbeat beat;
  beat.missing_ranks = 1;
  beat.missing = {4};
  beat.waited_ms = 50;
  ASSERT_TRUE(reducers_[0].send(beat).ok());
  ASSERT_TRUE(wait([&] { return waiting_.missing_ranks == 1; }));
  lose_connection(0);
  EXPECT_EQ(gone_count(), 2u) << "once for each connection";
}

TEST_F(KeeperSurvivalTest, TakesANewConnectionForOneThatStillStands) {
  survive();
  ControlLink old = std::move(reducers_[0]);
  auto [mine, theirs] = connection(0);
  reducers_[0] = std::move(theirs);
  keeper_->replace(id_, 0, std::move(mine));
  keeper_->send(id_, 0, suspect());
  expect_suspect(0);
  old.close();
  expect_quiet(0);
}

TEST_F(KeeperSurvivalTest, WaitingIsThatOfTheReducersThatLive) {
  survive();
  wire::Heartbeat beat;
  beat.missing_ranks = 2;
  beat.waited_ms = 700;
  beat.missing = {5, 6};
  ASSERT_TRUE(reducers_[1].send(beat).ok());
  ASSERT_TRUE(wait([&] { return waiting_.waited_ms == 700; }));
  beat.missing_ranks = 1;
  beat.waited_ms = 50;
  ASSERT_TRUE(reducers_[0].send(beat).ok());
  reducers_[1].close();
  ASSERT_TRUE(wait([&] { return waiting_.waited_ms == 50; }));
  EXPECT_EQ(waiting_.missing_ranks, 1u);
}

TEST_F(KeeperSurvivalTest, LeavesAgainOverANewConnection) {
  survive();
  keeper_->leave(id_);
  ASSERT_TRUE(expect(0, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(expect(1, wire::FrameType::kLeave).has_value());
  lose_connection(0);
  ASSERT_TRUE(reducers_[1].send(wire::LeaveAck{}).ok());
  ASSERT_TRUE(reducers_[1].send(wire::DrainNotice{}).ok());
  ASSERT_TRUE(wait([&] { return !notices_.empty(); }));  // and so the acknowledgement before it
  {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(left_) << "who is only cut off has acknowledged nothing";
  }
  replace(0);
  ASSERT_TRUE(expect(0, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
}

TEST_F(KeeperSurvivalTest, SaysNothingOfAReducerThatGoesAfterItsAcknowledgement) {
  survive();
  keeper_->leave(id_);
  ASSERT_TRUE(expect(1, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(reducers_[1].send(wire::LeaveAck{}).ok());
  reducers_[1].close();
  ASSERT_TRUE(expect(0, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  ASSERT_TRUE(wait([&] { return left_; }));
  EXPECT_EQ(gone_count(), 0u);
}

TEST_F(KeeperSurvivalTest, LeavesOnceAndWhenItWasAcknowledgedNotAgain) {
  survive();
  keeper_->leave(id_);
  ASSERT_TRUE(expect(0, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  ASSERT_TRUE(reducers_[0].send(wire::DrainNotice{}).ok());
  ASSERT_TRUE(wait([&] { return !notices_.empty(); }));
  replace(0);
  keeper_->send(id_, 0, suspect());
  EXPECT_EQ(next_word(0), wire::FrameType::kSuspect);
}

TEST_F(KeeperSurvivalTest, TellsOneThatWasAddedOfTheLeaveWhenItIsSeated) {
  survive();
  auto [mine, theirs] = connection(2);
  const auto added = keeper_->add_peer(id_, {.link = std::move(mine)});
  ASSERT_TRUE(added.has_value());
  reducers_.push_back(std::move(theirs));
  keeper_->leave(id_);
  keeper_->seat(id_, *added, {.incarnation = 5});
  EXPECT_EQ(next_word(2), wire::FrameType::kCommit);
  EXPECT_EQ(next_word(2), wire::FrameType::kLeave);
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(reducers_[i].send(wire::LeaveAck{}).ok());
  ASSERT_TRUE(reducers_[0].send(wire::DrainNotice{}).ok());
  ASSERT_TRUE(wait([&] { return !notices_.empty(); }));
  {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(left_);
  }
  ASSERT_TRUE(reducers_[2].send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
}

TEST_F(KeeperSurvivalTest, DoesNotWaitForOneThatWasNotSeated) {
  survive();
  auto [mine, theirs] = connection(2);
  ASSERT_TRUE(keeper_->add_peer(id_, {.link = std::move(mine)}).has_value());
  keeper_->leave(id_);
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(reducers_[i].send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
}

TEST_F(KeeperSurvivalTest, WhoWasDroppedNeedNotAcknowledge) {
  survive();
  keeper_->drop(id_, 1);
  EXPECT_FALSE(expect(1, wire::FrameType::kLeave).has_value()) << "closed";
  keeper_->leave(id_);
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
  EXPECT_EQ(gone_count(), 0u);
}

TEST_F(KeeperSurvivalTest, HasLeftWhenTheLastThatWasWaitedForIsDropped) {
  survive();
  keeper_->leave(id_);
  ASSERT_TRUE(expect(0, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  lose_connection(1);
  keeper_->drop(id_, 1);
  EXPECT_TRUE(wait([&] { return left_; }));
}

TEST_F(KeeperSurvivalTest, ADroppedReducerStaysAway) {
  survive();
  keeper_->drop(id_, 1);
  replace(1);
  EXPECT_FALSE(expect(1, wire::FrameType::kHeartbeat).has_value()) << "closed";
  expect_quiet(0);
}

TEST_F(KeeperSurvivalTest, KeepsAReducerThatIsAdded) {
  survive();
  auto [mine, theirs] = connection(2);
  reducers_.push_back(std::move(theirs));
  const auto place = keeper_->add_peer(id_, {.link = std::move(mine), .heartbeat = 20 * kMillisecond});
  ASSERT_EQ(place, 2u);
  keeper_->send(id_, 2, wire::Commit{.incarnation = 99});
  EXPECT_TRUE(expect(2, wire::FrameType::kCommit).has_value());
  EXPECT_TRUE(expect(2, wire::FrameType::kHeartbeat).has_value());
  ASSERT_TRUE(reducers_[2].send(wire::ViewCommit{.version = 1}).ok());
  ASSERT_TRUE(wait([&] { return !commits_.empty(); }));
  EXPECT_EQ(commits_[0].first, 2u);
  lose_connection(2);
}

TEST_F(KeeperSurvivalTest, BreaksWithAReducerThatTakesNothing) {
  survive();
  wire::ViewKnown much;
  much.addresses = std::string(wire::kMaxAddresses, 'a');
  for (int i = 0; i < 1000 && gone_count() == 0; ++i) keeper_->send(id_, 1, much);
  ASSERT_TRUE(wait([&] { return !gone_.empty(); }));
  EXPECT_EQ(gone_[0].peer, 1u);
  EXPECT_EQ(gone_[0].code, Errc::kReset);
  expect_quiet(0);
}

TEST_F(KeeperSurvivalTest, DoesNothingMoreAfterTheEnd) {
  survive();
  keeper_->abort(id_, Errc::kOpTimeout, 1, "over");
  EXPECT_TRUE(expect(0, wire::FrameType::kAbort).has_value());
  replace(0);
  EXPECT_FALSE(expect(0, wire::FrameType::kHeartbeat).has_value()) << "closed";
  EXPECT_FALSE(keeper_->add_peer(id_, {.link = connection(2).first}).has_value());
  keeper_->drop(id_, 1);
  keeper_->send_all(id_, suspect());
  EXPECT_EQ(gone_count(), 0u);
}

}  // namespace
}  // namespace sluice::engine
