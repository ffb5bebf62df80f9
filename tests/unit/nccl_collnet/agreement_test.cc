#include "nccl_plugin/collnet/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/clock.h"

namespace sluice::nccl::collnet {
namespace {

using ::testing::HasSubstr;
using transport::tcp::Socket;

// Nodes of one communicator, each on a thread of its own.
class AgreementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (uint32_t i = 0; i < kNodes; ++i) {
      auto socket = transport::tcp::listen_on("127.0.0.1", 0, {});
      ASSERT_TRUE(socket);
      Contact c{
          .identity = {}, .address = "127.0.0.1", .port = transport::tcp::bound_port(socket->fd()).value()};
      c.identity[0] = static_cast<uint8_t>(i + 1);
      nodes_.push_back(c);
      listeners_.push_back(std::move(*socket));
    }
  }

  // What each node came to. `missing` does not come at all.
  std::vector<std::string> run(
      const std::function<Result<void>(uint32_t)>& mine, uint32_t missing = kNodes,
      const std::function<std::string(uint32_t)>& common = [](uint32_t) { return "r1,r2"; },
      Nanos patience = 20 * kSecond) {
    std::vector<std::string> outcome(kNodes, "?");
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kNodes; ++rank) {
      if (rank == missing) continue;
      threads.emplace_back([&, rank] {
        auto a = Agreement::gather({.nodes = nodes_,
                                    .rank = rank,
                                    .session = session_of(nodes_),
                                    .common = common(rank),
                                    .local_address = "127.0.0.1"},
                                   std::move(listeners_[rank]), monotonic_now() + patience);
        if (!a) {
          outcome[rank] = a.error().text;
          return;
        }
        const auto all = a->decide(mine(rank), monotonic_now() + patience);
        a->part(monotonic_now() + patience);
        outcome[rank] = all ? "yes" : all.error().text;
      });
    }
    for (auto& t : threads) t.join();
    return outcome;
  }

  static constexpr uint32_t kNodes = 5;
  std::vector<Contact> nodes_;
  std::vector<Socket> listeners_;
};

TEST_F(AgreementTest, SucceedsWhenAllSucceed) {
  EXPECT_THAT(run([](uint32_t) { return Result<void>(); }), ::testing::Each("yes"));
}

TEST_F(AgreementTest, FailsOnAllWithTheWordsOfTheLowestThatFailed) {
  const auto outcome = run([](uint32_t rank) -> Result<void> {
    if (rank == 2 || rank == 4)
      return fail(Errc::kTimeout, "reducer b does not answer " + std::to_string(rank));
    return {};
  });
  EXPECT_THAT(outcome, ::testing::Each("node 2 (127.0.0.1): reducer b does not answer 2"));
}

TEST_F(AgreementTest, FailsOnAllWhenTheLeaderFails) {
  EXPECT_THAT(run([](uint32_t rank) -> Result<void> {
                if (rank == 0) return fail(Errc::kSystem, "no memory");
                return {};
              }),
              ::testing::Each("node 0 (127.0.0.1): no memory"));
}

TEST_F(AgreementTest, NamesANodeThatDoesNotCome) {
  auto outcome = run([](uint32_t) { return Result<void>(); }, 3, [](uint32_t) { return "r1"; }, kSecond);
  outcome.erase(outcome.begin() + 3);
  EXPECT_THAT(outcome, ::testing::Each(HasSubstr("node 3 (127.0.0.1) did not come in time")));
}

TEST_F(AgreementTest, ShowsBothListsWhereTheyDiffer) {
  const auto outcome = run([](uint32_t) { return Result<void>(); }, kNodes,
                           [](uint32_t rank) { return rank == 1 ? "r1" : "r1,r2"; });
  EXPECT_THAT(
      outcome,
      ::testing::Each(
          "the nodes see different reducers: node 0 (127.0.0.1) \"r1,r2\", node 1 (127.0.0.1) \"r1\""));
}

TEST_F(AgreementTest, FailsOnAllWhenOneHadNoPort) {
  nodes_[4].port = 0;
  EXPECT_THAT(run([](uint32_t) { return Result<void>(); }),
              ::testing::Each(HasSubstr("node 4 (127.0.0.1) could not open a port")));
}

TEST_F(AgreementTest, IsNotDisturbedByStrangers) {
  std::vector<Socket> strangers;
  const auto call = [&](const std::string& words) {
    auto s = transport::tcp::connect_to("127.0.0.1", nodes_[0].port, {}, monotonic_now() + 10 * kSecond);
    ASSERT_TRUE(s);
    EXPECT_TRUE(
        transport::tcp::write_all(s->fd(), std::as_bytes(std::span(words)), monotonic_now() + kSecond).ok());
    strangers.push_back(std::move(*s));
  };
  call("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  call("SLCA");
  call(std::string("SLCA\1\0\0\0\1\0\0\0\x20\0\0\0", 16) + std::string(32, 'x'));  // rank 1, another session
  call(std::string("SLCA\1\0\0\0\1\0\0\0\xff\xff\xff\x7f", 16));                   // a text of 2 GB
  call(std::string("SLCA\1\0\0\0\x63\0\0\0\x20\0\0\0", 16) + std::string(32, 'x'));  // rank 99
  call("");
  EXPECT_THAT(run([](uint32_t) { return Result<void>(); }), ::testing::Each("yes"));
}

TEST_F(AgreementTest, HasAnAnswerWhenTheLeaderIsGone) {
  auto outcome = run([](uint32_t) { return Result<void>(); }, 0, [](uint32_t) { return "r1"; }, kSecond);
  outcome.erase(outcome.begin());
  EXPECT_THAT(outcome, ::testing::Each(HasSubstr("node 0 (127.0.0.1)")));
}

}  // namespace
}  // namespace sluice::nccl::collnet
