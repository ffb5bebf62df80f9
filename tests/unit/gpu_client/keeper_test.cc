#include "gpu_client/engine/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <optional>

#include "core/clock.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

// Two reducers' ends of control connections, played by the test.
class KeeperTest : public ::testing::Test, protected Keeper::Listener {
 protected:
  void begin(Nanos heartbeat = 20 * kMillisecond, Nanos timeout = 20 * kSecond) {
    keeper_ = Keeper::acquire().value();
    std::vector<Keeper::Peer> peers;
    for (int i = 0; i < 2; ++i) {
      int fds[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
      peers.push_back({.link = ControlLink(transport::tcp::Socket(fds[0]), "reducer " + std::to_string(i), 1),
                       .heartbeat = heartbeat,
                       .timeout = timeout});
      reducers_.emplace_back(transport::tcp::Socket(fds[1]), "worker", 1);
    }
    id_ = keeper_->add(std::move(peers), *this);
  }
  void TearDown() override {
    if (keeper_) keeper_->remove(id_);
  }

  // The next frame of `type` that reducer i gets; others are passed over. Nothing when the connection ends
  // first.
  std::optional<std::vector<std::byte>> expect(int i, wire::FrameType type) {
    const Nanos deadline = monotonic_now() + 10 * kSecond;
    while (monotonic_now() < deadline) {
      ControlLink::Frame frame;
      const Status s = reducers_[static_cast<size_t>(i)].receive(frame);
      if (s.code() == Errc::kWouldBlock) {
        pollfd p{.fd = reducers_[static_cast<size_t>(i)].fd(), .events = POLLIN, .revents = 0};
        ::poll(&p, 1, 100);
        continue;
      }
      if (!s.ok()) return std::nullopt;
      if (frame.header.type == type) return std::vector<std::byte>(frame.body.begin(), frame.body.end());
    }
    ADD_FAILURE() << "no " << wire::to_string(type) << " in time";
    return std::nullopt;
  }
  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }
  void set(const std::function<void()>& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  void on_session_lost(Errc code, std::string text) noexcept override {
    set([&] { ++losses_, code_ = code, text_ = text; });
  }
  void on_waiting(const Keeper::Waiting& waiting) noexcept override {
    set([&] { waiting_ = waiting; });
  }
  void on_left() noexcept override {
    set([&] { left_ = true; });
  }

  std::shared_ptr<Keeper> keeper_;
  std::vector<ControlLink> reducers_;
  uint64_t id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int losses_ = 0;
  Errc code_ = Errc::kOk;
  std::string text_;
  Keeper::Waiting waiting_;
  bool left_ = false;
};

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
