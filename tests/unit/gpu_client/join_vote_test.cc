#include "gpu_client/engine/join/join_vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "core/clock.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

// Waits for a frame of `type` and returns its body.
std::vector<std::byte> receive(ControlConnection& connection, wire::FrameType type) {
  for (const Nanos deadline = monotonic_now() + 10 * kSecond; monotonic_now() < deadline;) {
    ControlConnection::Frame frame;
    const Status s = connection.receive(frame);
    if (s.ok() && frame.header.type == type) return {frame.body.begin(), frame.body.end()};
    if (s.ok()) continue;
    if (s.code() != Errc::kWouldBlock) break;
    pollfd p{.fd = connection.fd(), .events = POLLIN, .revents = 0};
    ::poll(&p, 1, 100);
  }
  ADD_FAILURE() << "no " << wire::to_string(type);
  return {};
}

template <typename Message>
Message receive(ControlConnection& connection) {
  Message message;
  const auto body = receive(connection, Message::kType);
  EXPECT_TRUE(wire::decode_body(std::span<const std::byte>(body), message).ok());
  return message;
}

// The control connections of a rank after its vote. The test holds the reducers' ends.
class JoinVoteTest : public ::testing::Test {
 protected:
  JoinVoteTest() {
    for (int i = 0; i < 2; ++i) {
      int fds[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
      const std::string name = "reducer " + std::to_string(i);
      reservations_.push_back(
          {.name = name, .control = ControlConnection(transport::tcp::Socket{fds[0]}, name, 1), .lanes = {}});
      reducers_.emplace_back(transport::tcp::Socket{fds[1]}, "rank", 1);
    }
    identity_.rank = 1;
    identity_.ranks = 2;
  }
  Result<uint64_t> await(Nanos time = 10 * kSecond) {
    return await_verdict(reservations_, address_, identity_, monotonic_now() + time);
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

  void expect_error(Errc code, const ::testing::Matcher<std::string>& text, Nanos time = 10 * kSecond) {
    const auto verdict = await(time);
    ASSERT_FALSE(verdict.has_value());
    EXPECT_EQ(verdict.error().code, code);
    EXPECT_THAT(verdict.error().text, text);
  }

  // Starts an arbiter that answers a VERDICT_QUERY on a new connection.
  std::thread serve_query(const wire::Verdict& verdict) {
    auto listener = std::make_shared<transport::tcp::Socket>(
        std::move(transport::tcp::listen_on("127.0.0.1", 0, {}).value()));
    address_.host = "127.0.0.1";
    address_.port = transport::tcp::bound_port(listener->fd()).value();
    return std::thread([listener, verdict] {
      pollfd p{.fd = listener->fd(), .events = POLLIN, .revents = 0};
      ::poll(&p, 1, 10'000);
      ControlConnection connection(transport::tcp::Socket{::accept(listener->fd(), nullptr, nullptr)}, "rank",
                                   0);
      const auto hello = receive<wire::Hello>(connection);
      EXPECT_EQ(hello.purpose, wire::Purpose::kVerdict);
      EXPECT_EQ(hello.rank, 1u);
      wire::Welcome welcome;
      welcome.version = 1;
      EXPECT_TRUE(connection.send(welcome).ok());
      receive(connection, wire::FrameType::kVerdictQuery);
      EXPECT_TRUE(connection.send(verdict).ok());
      connection.shutdown();
    });
  }

  std::vector<ReducerReservation> reservations_;
  std::vector<ControlConnection> reducers_;
  config::Endpoint address_;
  Identity identity_;
};

TEST_F(JoinVoteTest, ReturnsTheIncarnationAndIgnoresHeartbeats) {
  ASSERT_TRUE(reducers_[0].send(wire::Heartbeat{}).ok());
  ASSERT_TRUE(reducers_[1].send(wire::Heartbeat{}).ok());
  ASSERT_TRUE(reducers_[0].send(yes(77)).ok());
  auto verdict = await();
  ASSERT_TRUE(verdict.has_value()) << verdict.error().text;
  EXPECT_EQ(*verdict, 77u);
}

TEST_F(JoinVoteTest, ReturnsTheReasonOfANo) {
  ASSERT_TRUE(reducers_[0].send(no("rank 0 did not join in time")).ok());
  expect_error(Errc::kJoinTimeout, "reducer 0 refused: rank 0 did not join in time");
}

TEST_F(JoinVoteTest, ReturnsARefusalFromAnyReducer) {
  wire::Refused refused;
  refused.code = Errc::kMismatch;
  refused.text = "ranks disagree";
  ASSERT_TRUE(reducers_[1].send(refused).ok());
  expect_error(Errc::kMismatch, "reducer 1 refused: ranks disagree");
}

TEST_F(JoinVoteTest, AcceptsAVerdictOnlyFromTheArbiter) {
  ASSERT_TRUE(reducers_[1].send(yes(77)).ok());
  auto verdict = await();
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, Errc::kUnexpectedMessage);
}

TEST_F(JoinVoteTest, RejectsACommitWithoutIncarnation) {
  ASSERT_TRUE(reducers_[0].send(yes(0)).ok());
  EXPECT_EQ(await().error().code, Errc::kBadField);
}

TEST_F(JoinVoteTest, TimesOutWithoutAVerdict) {
  expect_error(Errc::kJoinTimeout, HasSubstr("reducer 0: no verdict"), 20 * kMillisecond);
}

TEST_F(JoinVoteTest, NamesALostReducer) {
  reducers_[1].shutdown();
  expect_error(Errc::kReducerLost, HasSubstr("reducer 1"));
}

TEST_F(JoinVoteTest, QueriesTheVerdictAfterTheLossOfTheArbitersConnection) {
  std::thread arbiter = serve_query(no("rank 1 lost"));
  reducers_[0].shutdown();
  expect_error(Errc::kJoinTimeout, HasSubstr("rank 1 lost"));
  arbiter.join();
}

TEST_F(JoinVoteTest, FailsWhenTheSessionWasCommittedWithoutThisRank) {
  std::thread arbiter = serve_query(yes(77));
  reducers_[0].shutdown();
  expect_error(Errc::kReducerLost, HasSubstr("committed"));
  arbiter.join();
}

TEST_F(JoinVoteTest, VotesNoWithTheReasonAndWaitsForTheArbiter) {
  std::thread arbiter([&] {
    const auto vote = receive<wire::Vote>(reducers_[0]);
    EXPECT_EQ(vote.yes, 0);
    EXPECT_EQ(vote.reason.code, Errc::kMemoryLimit);
    EXPECT_EQ(vote.reason.rank, 1u);
    EXPECT_EQ(vote.reason.text, "reducer 1 refused: too much");
    EXPECT_TRUE(reducers_[0].send(no("rank 1: reducer 1 refused: too much")).ok());
  });
  vote_no(reservations_[0], 1, {Errc::kMemoryLimit, "reducer 1 refused: too much"});
  arbiter.join();
}

TEST_F(JoinVoteTest, ReplacesLocalErrorCodes) {
  wire::Refused refused;
  refused.code = Errc::kInvalidArgument;
  refused.text = "no";
  ASSERT_TRUE(reducers_[0].send(refused).ok());
  EXPECT_EQ(await().error().code, Errc::kAborted);

  ASSERT_TRUE(reducers_[0].send(no("taken")).ok());
  vote_no(reservations_[0], 1, {Errc::kSystem, "no memory"});
  abort_all(reservations_, 1, {Errc::kExhausted, "full"});
  const auto vote = receive<wire::Vote>(reducers_[0]);
  EXPECT_EQ(vote.reason.code, Errc::kAborted);
  EXPECT_EQ(vote.reason.text, "no memory");
  const auto abort = receive<wire::Abort>(reducers_[0]);
  EXPECT_EQ(abort.code, Errc::kAborted);
}

TEST_F(JoinVoteTest, ReturnsAnUnaskedAbort) {
  EXPECT_TRUE(check_for_refusal(reservations_).has_value()) << "nothing received yet";
  wire::Abort abort;
  abort.code = Errc::kDraining;
  abort.text = "draining";
  ASSERT_TRUE(reducers_[1].send(abort).ok());
  auto refusal = check_for_refusal(reservations_);
  ASSERT_FALSE(refusal.has_value());
  EXPECT_EQ(refusal.error().text, "reducer 1 ended the session: draining");
}

TEST_F(JoinVoteTest, PrefersTheArbitersLateRefusalToAnotherReducersLoss) {
  reducers_[1].close();  // a refused rank has ended its co-located reducer
  std::thread arbiter([this] {
    ::poll(nullptr, 0, 50);  // the refusal is late on purpose
    wire::Refused refused;
    refused.code = Errc::kMismatch;
    refused.text = "ranks disagree";
    EXPECT_TRUE(reducers_[0].send(refused).ok());
  });
  auto refusal = check_for_refusal(reservations_, 10 * kSecond);
  arbiter.join();
  ASSERT_FALSE(refusal.has_value());
  EXPECT_EQ(refusal.error().text, "reducer 0 refused: ranks disagree");
}

TEST_F(JoinVoteTest, SendsAbortToAllReducersAfterAYes) {
  abort_all(reservations_, 1, {Errc::kReducerLost, "reducer lost"});
  for (ControlConnection& reducer : reducers_) {
    const auto abort = receive<wire::Abort>(reducer);
    EXPECT_EQ(abort.text, "reducer lost");
  }
}

}  // namespace
}  // namespace sluice::engine
