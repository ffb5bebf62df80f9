#include "gpu_client/engine/ballot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "core/clock.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

// Blocks until a frame of `type` is there; its body.
std::vector<std::byte> receive(ControlLink& link, wire::FrameType type) {
  for (const Nanos deadline = monotonic_now() + 10 * kSecond; monotonic_now() < deadline;) {
    ControlLink::Frame frame;
    const Status s = link.receive(frame);
    if (s.ok() && frame.header.type == type) return {frame.body.begin(), frame.body.end()};
    if (s.ok()) continue;
    if (s.code() != Errc::kWouldBlock) break;
    pollfd p{.fd = link.fd(), .events = POLLIN, .revents = 0};
    ::poll(&p, 1, 100);
  }
  ADD_FAILURE() << "no " << wire::to_string(type);
  return {};
}

// A rank's control connections after its vote, with the test on the other ends.
class BallotTest : public ::testing::Test {
 protected:
  BallotTest() {
    for (int i = 0; i < 2; ++i) {
      int fds[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
      const std::string name = "reducer " + std::to_string(i);
      seats_.push_back(
          {.name = name, .control = ControlLink(transport::tcp::Socket{fds[0]}, name, 1), .lanes = {}});
      reducers_.emplace_back(transport::tcp::Socket{fds[1]}, "rank", 1);
    }
    who_.rank = 1;
    who_.ranks = 2;
  }
  Result<uint64_t> await(Nanos time = 10 * kSecond) {
    return await_verdict(seats_, address_, who_, monotonic_now() + time);
  }

  static wire::Verdict no(const char* text) {
    wire::Verdict v;
    v.reason = {.code = Errc::kJoinTimeout, .rank = 0, .text = text};
    return v;
  }
  static wire::Verdict yes(uint64_t incarnation) {
    wire::Verdict v;
    v.commit = 1;
    v.incarnation = incarnation;
    return v;
  }

  // The arbiter as it answers a VERDICT_QUERY on a new connection.
  std::thread serve_query(const wire::Verdict& verdict) {
    auto listener = std::make_shared<transport::tcp::Socket>(
        std::move(transport::tcp::listen_on("127.0.0.1", 0, {}).value()));
    address_.host = "127.0.0.1";
    address_.port = transport::tcp::bound_port(listener->fd()).value();
    return std::thread([listener, verdict] {
      pollfd p{.fd = listener->fd(), .events = POLLIN, .revents = 0};
      ::poll(&p, 1, 10'000);
      ControlLink link(transport::tcp::Socket{::accept(listener->fd(), nullptr, nullptr)}, "rank", 0);
      const auto body = receive(link, wire::FrameType::kHello);
      wire::Hello hello;
      EXPECT_TRUE(wire::decode_body(std::span<const std::byte>(body), hello).ok());
      EXPECT_EQ(hello.purpose, wire::Purpose::kVerdict);
      EXPECT_EQ(hello.rank, 1u);
      wire::Welcome welcome;
      welcome.version = 1;
      EXPECT_TRUE(link.send(welcome).ok());
      receive(link, wire::FrameType::kVerdictQuery);
      EXPECT_TRUE(link.send(verdict).ok());
      link.shutdown();
    });
  }

  std::vector<Seat> seats_;
  std::vector<ControlLink> reducers_;
  config::Endpoint address_;
  Identity who_;
};

TEST_F(BallotTest, TakesTheIncarnationAndPassesOverHeartbeats) {
  ASSERT_TRUE(reducers_[0].send(wire::Heartbeat{}).ok());
  ASSERT_TRUE(reducers_[1].send(wire::Heartbeat{}).ok());
  ASSERT_TRUE(reducers_[0].send(yes(77)).ok());
  auto verdict = await();
  ASSERT_TRUE(verdict.has_value()) << verdict.error().text;
  EXPECT_EQ(*verdict, 77u);
}

TEST_F(BallotTest, TellsTheReasonOfANo) {
  ASSERT_TRUE(reducers_[0].send(no("rank 0 did not join in time")).ok());
  auto verdict = await();
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, Errc::kJoinTimeout);
  EXPECT_EQ(verdict.error().text, "reducer 0 refused: rank 0 did not join in time");
}

TEST_F(BallotTest, HearsARefusalFromAnyReducer) {
  wire::Refused refused;
  refused.code = Errc::kMismatch;
  refused.text = "ranks disagree";
  ASSERT_TRUE(reducers_[1].send(refused).ok());
  auto verdict = await();
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, Errc::kMismatch);
  EXPECT_EQ(verdict.error().text, "reducer 1 refused: ranks disagree");
}

TEST_F(BallotTest, TakesAVerdictFromTheArbiterOnly) {
  ASSERT_TRUE(reducers_[1].send(yes(77)).ok());
  auto verdict = await();
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, Errc::kUnexpectedMessage);
}

TEST_F(BallotTest, RefusesACommitWithoutIncarnation) {
  ASSERT_TRUE(reducers_[0].send(yes(0)).ok());
  EXPECT_EQ(await().error().code, Errc::kBadField);
}

TEST_F(BallotTest, GivesUpWhenNothingIsHeard) {
  auto verdict = await(20 * kMillisecond);
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, Errc::kJoinTimeout);
  EXPECT_THAT(verdict.error().text, HasSubstr("reducer 0: no verdict"));
}

TEST_F(BallotTest, NamesAReducerThatGoesAway) {
  reducers_[1].shutdown();
  auto verdict = await();
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, Errc::kReducerLost);
  EXPECT_THAT(verdict.error().text, HasSubstr("reducer 1"));
}

TEST_F(BallotTest, AsksOverANewConnectionWhenTheArbitersBreaks) {
  std::thread arbiter = serve_query(no("rank 1 was lost"));
  reducers_[0].shutdown();
  auto verdict = await();
  arbiter.join();
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, Errc::kJoinTimeout);
  EXPECT_THAT(verdict.error().text, HasSubstr("rank 1 was lost"));
}

TEST_F(BallotTest, IsLostWhenTheOthersWereToldToGo) {
  std::thread arbiter = serve_query(yes(77));
  reducers_[0].shutdown();
  auto verdict = await();
  arbiter.join();
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, Errc::kReducerLost);
  EXPECT_THAT(verdict.error().text, HasSubstr("committed"));
}

TEST_F(BallotTest, VotesNoWithTheReasonAndWaitsUntilItIsTaken) {
  std::thread arbiter([&] {
    const auto body = receive(reducers_[0], wire::FrameType::kVote);
    wire::Vote vote;
    EXPECT_TRUE(wire::decode_body(std::span<const std::byte>(body), vote).ok());
    EXPECT_EQ(vote.yes, 0);
    EXPECT_EQ(vote.reason.code, Errc::kMemoryLimit);
    EXPECT_EQ(vote.reason.rank, 1u);
    EXPECT_EQ(vote.reason.text, "reducer 1 refused: too much");
    EXPECT_TRUE(reducers_[0].send(no("rank 1: reducer 1 refused: too much")).ok());
  });
  vote_no(seats_[0], 1, {Errc::kMemoryLimit, "reducer 1 refused: too much"});
  arbiter.join();
}

TEST_F(BallotTest, KeepsLocalNumbersToItselfAndTakesNone) {
  wire::Refused refused;
  refused.code = Errc::kInvalidArgument;
  refused.text = "no";
  ASSERT_TRUE(reducers_[0].send(refused).ok());
  EXPECT_EQ(await().error().code, Errc::kAborted);

  ASSERT_TRUE(reducers_[0].send(no("taken")).ok());
  vote_no(seats_[0], 1, {Errc::kSystem, "no memory"});
  abort_all(seats_, 1, {Errc::kExhausted, "full"});
  const auto vote_body = receive(reducers_[0], wire::FrameType::kVote);
  wire::Vote vote;
  ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(vote_body), vote).ok());
  EXPECT_EQ(vote.reason.code, Errc::kAborted);
  EXPECT_EQ(vote.reason.text, "no memory");
  const auto abort_body = receive(reducers_[0], wire::FrameType::kAbort);
  wire::Abort abort;
  ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(abort_body), abort).ok());
  EXPECT_EQ(abort.code, Errc::kAborted);
}

TEST_F(BallotTest, HasWordsThatCameUnasked) {
  EXPECT_TRUE(unasked_words(seats_).has_value()) << "none yet";
  wire::Abort abort;
  abort.code = Errc::kDraining;
  abort.text = "going";
  ASSERT_TRUE(reducers_[1].send(abort).ok());
  auto words = unasked_words(seats_);
  ASSERT_FALSE(words.has_value());
  EXPECT_EQ(words.error().text, "reducer 1 ended the session: going");
}

TEST_F(BallotTest, AbortsEverywhereAfterAYes) {
  abort_all(seats_, 1, {Errc::kReducerLost, "gone"});
  for (ControlLink& reducer : reducers_) {
    const auto body = receive(reducer, wire::FrameType::kAbort);
    wire::Abort abort;
    EXPECT_TRUE(wire::decode_body(std::span<const std::byte>(body), abort).ok());
    EXPECT_EQ(abort.text, "gone");
  }
}

}  // namespace
}  // namespace sluice::engine
