#include "nccl_plugin/collnet/consensus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <thread>

#include "core/clock.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::nccl::collnet {
namespace {

using ::testing::HasSubstr;
using transport::tcp::Socket;

// The nodes of one communicator, each on its own thread.
class ConsensusFixture : public ::testing::Test {
 protected:
  void SetUp() override { make_nodes(); }
  void make_nodes() {
    nodes_.clear();
    listeners_.clear();
    for (uint32_t i = 0; i < kNodes; ++i) {
      auto socket = transport::tcp::listen_on("127.0.0.1", 0, {});
      ASSERT_TRUE(socket);
      NodeHandle c{
          .identity = {}, .address = "127.0.0.1", .port = transport::tcp::bound_port(socket->fd()).value()};
      c.identity[0] = static_cast<uint8_t>(i + 1);
      nodes_.push_back(c);
      listeners_.push_back(std::move(*socket));
    }
  }

  static Result<void> succeed(uint32_t) { return {}; }
  static std::string same_list(uint32_t) { return "r1,r2"; }
  static constexpr ConnectTimeouts kTimeouts{.connect = 10 * kSecond, .join = 20 * kSecond};

  [[nodiscard]] std::string outcome_of(uint32_t rank, const ConnectTimeouts& timeouts,
                                       const Result<void>& vote = {},
                                       const std::string& common_text = "r1,r2") {
    auto c = Consensus::connect({.nodes = nodes_,
                                 .rank = rank,
                                 .session = session_id_of(nodes_),
                                 .common_text = common_text,
                                 .remedy = "set the same list",
                                 .local_address = "127.0.0.1"},
                                std::move(listeners_[rank]), timeouts);
    if (!c) return c.error().text;
    const auto all = c->decide(vote, monotonic_now() + 20 * kSecond, rank == 0 ? announcement_ : "");
    c->finish(monotonic_now() + 20 * kSecond);
    return all ? "yes" + *all : all.error().text;
  }

  // Returns the outcome of each node but `absent`, which does not connect.
  std::vector<std::string> run(const std::function<Result<void>(uint32_t)>& vote, uint32_t absent = kNodes,
                               const std::function<std::string(uint32_t)>& common_text = same_list,
                               const ConnectTimeouts& timeouts = kTimeouts) {
    std::vector<std::string> outcome(kNodes, "?");
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kNodes; ++rank) {
      if (rank == absent) continue;
      threads.emplace_back(
          [&, rank] { outcome[rank] = outcome_of(rank, timeouts, vote(rank), common_text(rank)); });
    }
    for (auto& t : threads) t.join();
    if (absent < kNodes) outcome.erase(outcome.begin() + absent);
    return outcome;
  }

  // Waits until another node has connected to this node, which does not answer yet.
  void wait_for_connection(uint32_t rank) {
    pollfd p{.fd = listeners_[rank].fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&p, 1, 20'000), 1);
  }
  // Runs all nodes but `late`, and calls `then` after another node has connected to `late`.
  std::vector<std::string> run_with_late_node(uint32_t late, const std::function<std::string()>& then) {
    std::string late_outcome;
    std::thread thread([&] {
      wait_for_connection(late);
      late_outcome = then();
    });
    auto outcome = run(succeed, late, same_list, {.connect = 100 * kMillisecond, .join = 20 * kSecond});
    thread.join();
    outcome.push_back(late_outcome);
    return outcome;
  }

  static constexpr uint32_t kNodes = 5;
  std::string announcement_;
  std::vector<NodeHandle> nodes_;
  std::vector<Socket> listeners_;
};

TEST_F(ConsensusFixture, SucceedsWhenAllSucceed) {
  EXPECT_THAT(run(succeed), ::testing::Each("yes"));
}

TEST_F(ConsensusFixture, FailsOnAllWithTheErrorOfTheLowestFailedRank) {
  const auto outcome = run([](uint32_t rank) -> Result<void> {
    if (rank == 2 || rank == 4)
      return fail(Errc::kTimeout, "reducer b does not answer " + std::to_string(rank));
    return {};
  });
  EXPECT_THAT(outcome, ::testing::Each("node 2 (127.0.0.1): reducer b does not answer 2"));
}

TEST_F(ConsensusFixture, AnnouncesTheCoordinatorsTextOnSuccess) {
  announcement_ = " 7470";
  EXPECT_THAT(run(succeed), ::testing::Each("yes 7470"));
}

TEST_F(ConsensusFixture, FailsOnAllWhenTheCoordinatorFails) {
  EXPECT_THAT(run([](uint32_t rank) -> Result<void> {
                if (rank == 0) return fail(Errc::kSystem, "no memory");
                return {};
              }),
              ::testing::Each("node 0 (127.0.0.1): no memory"));
}

TEST_F(ConsensusFixture, NamesALiveNodeThatDoesNotConnect) {
  EXPECT_THAT(run(succeed, 3, same_list, {.connect = 100 * kMillisecond, .join = 3 * kSecond}),
              ::testing::Each("node 3 (127.0.0.1) did not connect in time (SLUICE_JOIN_TIMEOUT is 3s)"));
}

TEST_F(ConsensusFixture, WaitsForAnyLateNode) {
  for (const uint32_t late : {0U, 3U}) {
    if (late != 0) make_nodes();
    const auto connect_late = [&] { return outcome_of(late, kTimeouts); };
    EXPECT_THAT(run_with_late_node(late, connect_late), ::testing::Each("yes")) << late;
  }
}

TEST_F(ConsensusFixture, EndsAtTheDeadlineForAnyLateNode) {
  for (const uint32_t late : {0U, 3U}) {
    if (late != 0) make_nodes();
    const Nanos begin = monotonic_now();
    const auto outcome = run(succeed, late, same_list, {.connect = 100 * kMillisecond, .join = 3 * kSecond});
    // The kernel reports the age of the hello in its ticks of 10 ms at most.
    EXPECT_GE(monotonic_now() - begin, 3 * kSecond - 20 * kMillisecond);
    EXPECT_THAT(outcome,
                ::testing::Each(::testing::StartsWith(late == 0 ? "no decision from node 0" : "node 3")));
    // All other nodes have given up, so the late node fails at once.
    const Nanos late_begin = monotonic_now();
    EXPECT_THAT(outcome_of(late, {.connect = 20 * kSecond, .join = 60 * kSecond}),
                HasSubstr(late == 0 ? "node 0 (127.0.0.1) connected too late"
                                    : "node 0 (127.0.0.1), the coordinator"))
        << late;
    EXPECT_LT(monotonic_now() - late_begin, 10 * kSecond);
  }
}

TEST_F(ConsensusFixture, UsesTheSmallestJoinTimeout) {
  std::string impatient;
  std::thread node([&] { impatient = outcome_of(1, {.connect = 100 * kMillisecond, .join = 3 * kSecond}); });
  wait_for_connection(0);
  EXPECT_THAT(outcome_of(0, {.connect = 100 * kMillisecond, .join = 60 * kSecond}), HasSubstr("node 2"));
  node.join();
  EXPECT_THAT(impatient, HasSubstr("node 2 (127.0.0.1) did not connect in time"));
}

TEST_F(ConsensusFixture, DoesNotWaitForALostNode) {
  // The nodes connect to the coordinator at once. The coordinator probes missing nodes after the connect
  // timeout.
  const struct {
    uint32_t rank;
    Nanos connect;
    const char* text;
  } nodes[] = {{0, 20 * kSecond, "node 0 (127.0.0.1), the coordinator: cannot connect"},
               {3, 100 * kMillisecond, "node 3 (127.0.0.1) lost: cannot connect"}};
  for (const auto& lost_node : nodes) {
    if (lost_node.rank != 0) make_nodes();
    listeners_[lost_node.rank] = Socket();
    const ConnectTimeouts timeouts{.connect = lost_node.connect, .join = 3600 * kSecond};
    EXPECT_THAT(run(succeed, lost_node.rank, same_list, timeouts),
                ::testing::Each(HasSubstr(lost_node.text)));
  }
}

TEST_F(ConsensusFixture, DoesNotWaitForANodeThatIsLostMeanwhile) {
  for (const uint32_t lost : {0U, 3U}) {
    if (lost != 0) make_nodes();
    auto outcome = run_with_late_node(lost, [&] {
      listeners_[lost] = Socket();
      return "lost";
    });
    outcome.pop_back();
    EXPECT_THAT(outcome,
                ::testing::Each(HasSubstr(lost == 0 ? "node 0 (127.0.0.1)" : "node 3 (127.0.0.1) lost")));
  }
}

TEST_F(ConsensusFixture, ShowsBothListsIfTheyDiffer) {
  const auto outcome = run(succeed, kNodes, [](uint32_t rank) { return rank == 1 ? "r1" : "r1,r2"; });
  EXPECT_THAT(
      outcome,
      ::testing::Each(
          "nodes have different reducer lists: node 0 (127.0.0.1) \"r1,r2\", node 1 (127.0.0.1) \"r1\"; "
          "set the same list"));
}

TEST_F(ConsensusFixture, FailsOnAllWhenANodeHasNoPort) {
  nodes_[4].port = 0;
  EXPECT_THAT(run(succeed), ::testing::Each(HasSubstr("node 4 (127.0.0.1) could not open a port")));
}

TEST_F(ConsensusFixture, IgnoresOtherClients) {
  std::vector<Socket> other_clients;
  const auto send_text = [&](const std::string& text) {
    auto s = transport::tcp::connect_to("127.0.0.1", nodes_[0].port, {}, monotonic_now() + 10 * kSecond);
    ASSERT_TRUE(s);
    EXPECT_TRUE(
        transport::tcp::write_all(*s, std::as_bytes(std::span(text)), monotonic_now() + kSecond).ok());
    other_clients.push_back(std::move(*s));
  };
  send_text("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  send_text("SLCA");
  const std::string filler(32, 'x');
  send_text(std::string("SLCA\1\0\0\0\1\0\0\0\x20\0\0\0", 16) + filler);    // rank 1 of another session
  send_text(std::string("SLCA\1\0\0\0\1\0\0\0\xff\xff\xff\x7f", 16));       // a text of 2 GB
  send_text(std::string("SLCA\1\0\0\0\x63\0\0\0\x20\0\0\0", 16) + filler);  // rank 99
  send_text("");
  EXPECT_THAT(run(succeed), ::testing::Each("yes"));
}

}  // namespace
}  // namespace sluice::nccl::collnet
