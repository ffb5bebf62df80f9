// The nodes of a communicator meet at their coordinator while other programs connect to it and send nothing.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "nccl_plugin/collnet/consensus.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"

namespace sluice::nccl::test {
namespace {

using collnet::Consensus;
using transport::tcp::Socket;

constexpr collnet::ConnectTimeouts kTimeouts{.connect = 10 * kSecond, .join = 10 * kSecond};

class MeetingNodes : public ::testing::Test {
 protected:
  static constexpr uint32_t kNodes = 4;

  void SetUp() override {
    for (uint32_t rank = 0; rank < kNodes; ++rank) {
      auto listener = transport::tcp::listen_on("127.0.0.1", 0, {});
      ASSERT_TRUE(listener.has_value());
      peers.nodes.push_back({});
      peers.nodes.back().address = "127.0.0.1";
      peers.nodes.back().port = transport::tcp::bound_port(listener->fd()).value();
      listeners.push_back(std::move(*listener));
    }
    peers.session.bytes[0] = 7;
    peers.common_text = "none";
  }
  [[nodiscard]] Result<Socket> connect_to_coordinator() const {
    return transport::tcp::connect_to("127.0.0.1", peers.nodes[0].port, {}, monotonic_now() + 10 * kSecond);
  }
  // They stay open as long as the result.
  [[nodiscard]] std::deque<Socket> connect_silently(int count) const {
    std::deque<Socket> silent;
    for (int i = 0; i < count; ++i) {
      auto socket = connect_to_coordinator();
      EXPECT_TRUE(socket.has_value());
      if (socket) silent.push_back(std::move(*socket));
    }
    return silent;
  }
  // Every node connects when `wait` returns, votes yes and gets the decision.
  void meet(const std::function<void(uint32_t rank)>& wait = [](uint32_t /*rank*/) {}) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kNodes; ++rank) {
      threads.emplace_back([this, rank, &wait] {
        collnet::PeerSet own = peers;
        own.rank = rank;
        wait(rank);
        auto consensus = Consensus::connect(own, std::move(listeners[rank]), kTimeouts);
        ASSERT_TRUE(consensus.has_value()) << "node " << rank << ": " << consensus.error().text;
        const auto decided = consensus->decide({}, monotonic_now() + kTimeouts.join);
        EXPECT_TRUE(decided.has_value()) << "node " << rank << ": " << decided.error().text;
        consensus->finish(monotonic_now() + kTimeouts.join);
      });
    }
    for (std::thread& t : threads) t.join();
  }

  collnet::PeerSet peers;
  std::vector<Socket> listeners;
};

// They wait in the backlog, before the nodes, and are accepted with these in one turn.
TEST_F(MeetingNodes, MeetBehindSilentConnections) {
  const std::deque<Socket> silent = connect_silently(300);
  meet();
}

TEST_F(MeetingNodes, MeetAmongSilentConnections) {
  std::deque<Socket> silent;
  std::atomic<int> connected{0};
  std::atomic<bool> done{false};
  std::thread strangers([&] {
    while (!done) {
      auto socket = connect_to_coordinator();
      if (!socket) break;  // the nodes have met
      silent.push_back(std::move(*socket));
      if (silent.size() > 200) silent.pop_front();
      ++connected;
      ::poll(nullptr, 0, 2);  // 500 per second
    }
  });
  meet([&](uint32_t rank) {
    while (connected < 150 * static_cast<int>(rank)) ::poll(nullptr, 0, 1);
  });
  done = true;
  strangers.join();
}

// The nodes have said hello before the coordinator accepts the first of many others.
TEST_F(MeetingNodes, AreReadBeforeTheyGiveWay) {
  std::vector<std::thread> threads;
  std::atomic<uint32_t> met{0};
  for (uint32_t rank = 1; rank < kNodes; ++rank) {
    threads.emplace_back([this, rank, &met] {
      collnet::PeerSet own = peers;
      own.rank = rank;
      auto consensus = Consensus::connect(own, std::move(listeners[rank]), kTimeouts);
      ASSERT_TRUE(consensus.has_value()) << "node " << rank << ": " << consensus.error().text;
      ++met;
    });
  }
  // A connection at the listener, whose hello is there or follows.
  pollfd first{.fd = listeners[0].fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&first, 1, 10'000), 1);
  const std::deque<Socket> silent = connect_silently(300);
  auto consensus = Consensus::connect(peers, std::move(listeners[0]), kTimeouts);
  EXPECT_TRUE(consensus.has_value()) << consensus.error().text;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(met, kNodes - 1);
}

}  // namespace
}  // namespace sluice::nccl::test
