#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/unit/gpu_client/keeper_rig.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;
using KeeperTest = test::KeeperRig;

TEST_F(KeeperTest, SendsHeartbeatsToEveryReducer) {
  begin();
  for (int i = 0; i < 2; ++i) {
    uint64_t last = 0;
    for (int n = 0; n < 3; ++n) {
      const auto body = expect(i, wire::FrameType::kHeartbeat);
      ASSERT_TRUE(body.has_value());
      wire::Heartbeat beat;
      ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(*body), beat).ok());
      EXPECT_EQ(beat.count, ++last);
    }
  }
}

TEST_F(KeeperTest, TellsWhoIsWaitedForLongest) {
  begin();
  wire::Heartbeat beat;
  beat.missing_ranks = 2;
  beat.waited_ms = 700;
  beat.missing = {5, 6};
  ASSERT_TRUE(reducers_[1].send(beat).ok());
  ASSERT_TRUE(wait([&] { return waiting_.missing_ranks == 2; }));
  EXPECT_EQ(waiting_.first_rank, 5u);
  EXPECT_EQ(waiting_.waited_ms, 700u);
  beat = {};
  ASSERT_TRUE(reducers_[1].send(beat).ok());
  EXPECT_TRUE(wait([&] { return waiting_.missing_ranks == 0; }));
}

TEST_F(KeeperTest, LosesASilentReducerAndTellsTheOthers) {
  begin(20 * kMillisecond, 100 * kMillisecond);
  // Reducer 0 keeps talking, reducer 1 does not.
  for (const Nanos deadline = monotonic_now() + 10 * kSecond; monotonic_now() < deadline;) {
    ASSERT_TRUE(reducers_[0].send(wire::Heartbeat{}).ok());
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return losses_ > 0; })) break;
  }
  ASSERT_EQ(losses_, 1);
  EXPECT_EQ(code_, Errc::kReducerLost);
  EXPECT_EQ(text_, "reducer 1 was lost: silent for 100 ms");
  const auto body = expect(0, wire::FrameType::kAbort);
  ASSERT_TRUE(body.has_value());
  wire::Abort abort;
  ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(*body), abort).ok());
  EXPECT_EQ(abort.code, Errc::kReducerLost);
  EXPECT_EQ(abort.text, text_);
}

TEST_F(KeeperTest, LosesAReducerThatCloses) {
  begin();
  reducers_[1].shutdown();
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kReducerLost);
  EXPECT_EQ(text_, "reducer 1 was lost: closed the control connection");
  EXPECT_TRUE(expect(0, wire::FrameType::kAbort).has_value());
}

TEST_F(KeeperTest, PassesOnTheWordsOfAnAbortOnce) {
  begin();
  wire::Abort abort;
  abort.code = Errc::kPeerLost;
  abort.rank = 2;
  abort.text = "rank 2 was lost";
  ASSERT_TRUE(reducers_[0].send(abort).ok());
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kPeerLost);
  EXPECT_EQ(text_, "reducer 0 ended the session: rank 2 was lost");
  const auto body = expect(1, wire::FrameType::kAbort);
  ASSERT_TRUE(body.has_value());
  wire::Abort passed;
  ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(*body), passed).ok());
  EXPECT_EQ(passed.text, "rank 2 was lost");
  EXPECT_EQ(passed.rank, 2u);
  // The other one says the same, later: once is enough.
  static_cast<void>(reducers_[1].send(abort));
  EXPECT_FALSE(expect(1, wire::FrameType::kAbort).has_value()) << "nothing but the end comes after it";
  EXPECT_EQ(losses_, 1);
  keeper_->remove(id_);
  EXPECT_FALSE(expect(0, wire::FrameType::kAbort).has_value()) << "not to the one who said it";
}

TEST_F(KeeperTest, AbortsEverywhereWhenTold) {
  begin();
  keeper_->abort(id_, Errc::kOpTimeout, 1, "operation 3 did not end in time");
  for (int i = 0; i < 2; ++i) {
    const auto body = expect(i, wire::FrameType::kAbort);
    ASSERT_TRUE(body.has_value());
    wire::Abort abort;
    ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(*body), abort).ok());
    EXPECT_EQ(abort.code, Errc::kOpTimeout);
    EXPECT_EQ(abort.rank, 1u);
  }
  EXPECT_EQ(losses_, 0) << "whoever aborts knows";
}

TEST_F(KeeperTest, NeitherTakesNorSendsLocalNumbers) {
  begin();
  keeper_->abort(id_, Errc::kInternal, 1, "lost count");
  for (int i = 0; i < 2; ++i) {
    const auto body = expect(i, wire::FrameType::kAbort);
    ASSERT_TRUE(body.has_value());
    wire::Abort abort;
    ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(*body), abort).ok());
    EXPECT_EQ(abort.code, Errc::kAborted);
    EXPECT_EQ(abort.text, "lost count");
  }
  keeper_->remove(id_);
  reducers_.clear();
  begin();
  wire::Abort abort;
  abort.code = Errc::kInvalidArgument;
  ASSERT_TRUE(reducers_[0].send(abort).ok());
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kAborted);
}

TEST_F(KeeperTest, HasLeftWhenEveryReducerAcknowledged) {
  begin();
  keeper_->leave(id_);
  ASSERT_TRUE(expect(0, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(expect(1, wire::FrameType::kLeave).has_value());
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  ASSERT_TRUE(reducers_[1].send(wire::LeaveAck{}).ok());
  EXPECT_TRUE(wait([&] { return left_; }));
  EXPECT_EQ(losses_, 0);
}

TEST_F(KeeperTest, SaysHowFarTheRankIs) {
  begin(3600 * kSecond);
  ASSERT_TRUE(expect(0, wire::FrameType::kHeartbeat).has_value()) << "the first beat is due at once";
  finished_ = 7;
  ASSERT_TRUE(reducers_[0].send(wire::Heartbeat{.missing = {}, .answer = 1}).ok());
  const auto body = expect(0, wire::FrameType::kHeartbeat);
  ASSERT_TRUE(body.has_value());
  wire::Heartbeat beat;
  ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(*body), beat).ok());
  EXPECT_EQ(beat.finished, 7u);
  finished_ = 9;
  keeper_->leave(id_);
  const auto left = expect(0, wire::FrameType::kLeave);
  ASSERT_TRUE(left.has_value());
  wire::Leave leave;
  ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(*left), leave).ok());
  EXPECT_EQ(leave.finished, 9u);
}

TEST_F(KeeperTest, TakesACloseWhileLeavingForAnAcknowledgement) {
  begin();
  keeper_->leave(id_);
  ASSERT_TRUE(reducers_[0].send(wire::LeaveAck{}).ok());
  reducers_.pop_back();
  EXPECT_TRUE(wait([&] { return left_; }));
  EXPECT_EQ(losses_, 0);
}

TEST_F(KeeperTest, EndsTheSessionOnMalformedFrames) {
  begin();
  const char junk[] = "GET / HTTP/1.1\r\nHost: reducer\r\nAccept: everything that there is\r\n\r\n";
  ASSERT_GT(::send(reducers_[0].fd(), junk, sizeof junk, 0), 64);
  ASSERT_TRUE(wait([&] { return losses_ > 0; }));
  EXPECT_EQ(code_, Errc::kBadMagic);
  EXPECT_THAT(text_, HasSubstr("bad_magic"));
}

TEST_F(KeeperTest, IsOneForTheProcessAndGoesWithItsLastHolder) {
  begin();
  auto again = Keeper::acquire().value();
  EXPECT_EQ(again.get(), keeper_.get());
  keeper_->remove(id_);
  const std::weak_ptr<Keeper> watched = keeper_;
  again.reset();
  keeper_.reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace sluice::engine
