// The clients' bytes of the recorded exchange, given to a real lane over sockets: what comes back is the
// recorded reducer's, byte for byte.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "reducer/lane/lane.h"
#include "tests/conformance/wire/exchange_file.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"
#include "wire/view.h"

namespace sluice::reducer {
namespace {

using Bytes = std::vector<std::byte>;
using transport::tcp::Socket;

constexpr uint32_t kRanks = 2;

SessionPlan recorded_plan() {
  wire::View view;
  view.reducers = {{.id = 0xa1a2a3a4a5a6a7a8}};
  view.window_bytes = 32 * kKiB;
  view.slot_bytes = 16 * kKiB;
  SessionPlan plan;
  plan.handle = 7;
  plan.ranks = kRanks;
  plan.slots = wire::slots_per_lane(view.window_bytes, view.slot_bytes, 1);
  plan.slot_bytes = view.slot_bytes;
  plan.view_hash = static_cast<uint32_t>(wire::view_hash(view));
  return plan;
}

class LaneReplay : public testing::Test {
 protected:
  LaneReplay() {
    auto context = transport::tcp::make_context();
    transport::tcp::TcpContext* const tcp = context->get();
    const auto adopt = [tcp](Socket socket, transport::Handler& handler,
                             const transport::EndpointOptions& options) {
      return tcp->adopt(std::move(socket), handler, options);
    };
    session_ = std::make_unique<LaneSession>(plan_, *SlotArena::map(plan_));
    lane_ = std::make_unique<Lane>(std::move(*context), adopt, LaneOptions{});
    for (Rank rank = 0; rank < kRanks; ++rank) {
      std::array<int, 2> fds{};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
      clients_[rank] = Socket(fds[0]);
      EXPECT_TRUE(lane_->command({.kind = LaneCommand::Kind::kAttach,
                                  .session = session_.get(),
                                  .rank = rank,
                                  .socket = {.fd = fds[1]}}));
    }
    settle();
  }

  void settle() {
    while (lane_->do_work(now_) != 0) {
    }
  }

  void send(Rank rank, std::span<const std::byte> bytes, size_t piece) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(piece, bytes.size()));
      ASSERT_TRUE(transport::tcp::write_all(clients_[rank].fd(), part, monotonic_now() + 10 * kSecond).ok());
      settle();
      bytes = bytes.subspan(part.size());
    }
  }

  Bytes receive(Rank rank, size_t size) {
    Bytes out(size);
    EXPECT_TRUE(transport::tcp::read_exact(clients_[rank].fd(), out, monotonic_now() + 10 * kSecond).ok());
    return out;
  }

  bool nothing_comes(Rank rank) const {
    std::byte b{};
    return ::recv(clients_[rank].fd(), &b, 1, MSG_DONTWAIT) < 0;
  }

  // The recorded frames of the lane connections from COMMIT on, the clients' in pieces of `piece` bytes.
  void replay(size_t piece) {
    unsigned results = 0;
    for (const test::RecordedFrame& frame :
         test::read_exchange(std::string(SLUICE_VECTORS) + "/v1_exchange.hex")) {
      if (!frame.connection.starts_with("lane")) continue;
      SCOPED_TRACE(frame.connection + ' ' + frame.name);
      const Rank rank = frame.connection == "lane0" ? 0 : 1;
      // As the file's remarks say.
      if (frame.name == "CONTRIBUTION 0 of rank 1") now_ += 1500 * kMicrosecond;
      if (frame.name == "CONTRIBUTION 2 of rank 0") now_ += 5000 * kSecond;
      if (frame.to_reducer) {
        if (frame.name != "COMMIT" && !frame.name.starts_with("CONTRIBUTION")) continue;  // the conductor's
        ASSERT_TRUE(nothing_comes(rank)) << "before it was due";
        send(rank, frame.bytes, piece);
      } else if (frame.name.starts_with("RESULT")) {
        ASSERT_EQ(receive(rank, frame.bytes.size()), frame.bytes);
        ++results;
      } else if (frame.name == "ABORT") {
        session_->set_ending({frame.bytes.begin() + wire::kHeaderBytes, frame.bytes.end()});
        ASSERT_TRUE(lane_->command({.kind = LaneCommand::Kind::kEnd, .session = session_.get()}));
        settle();
        ASSERT_EQ(receive(rank, frame.bytes.size()), frame.bytes);
      }
    }
    EXPECT_EQ(results, 6u);
  }

  // What the lane told of it: both connections closed in order, then the session released.
  void expect_release() {
    for (Socket& client : clients_) {
      std::array<std::byte, 4096> last_words;  // rank 1 gets its ABORT too
      while (::recv(client.fd(), last_words.data(), last_words.size(), 0) > 0) {
      }
      client = Socket();
    }
    settle();
    (void)lane_->do_work(now_);
    std::vector<LaneEvent::Kind> kinds;
    for (LaneEvent e; lane_->poll_event(e);) {
      kinds.push_back(e.kind);
      EXPECT_EQ(e.kind == LaneEvent::Kind::kClosed ? e.code : Errc::kClosed, Errc::kClosed);
    }
    EXPECT_EQ(kinds,
              (std::vector{LaneEvent::Kind::kClosed, LaneEvent::Kind::kClosed, LaneEvent::Kind::kReleased}));
    EXPECT_EQ(lane_->session_count(), 0u);
  }

  const SessionPlan plan_ = recorded_plan();
  Nanos now_ = kSecond;
  std::unique_ptr<LaneSession> session_;  // outlives the lane's endpoints
  std::unique_ptr<Lane> lane_;
  std::array<Socket, kRanks> clients_;
};

TEST_F(LaneReplay, AnswersWithTheRecordedBytes) {
  replay(1 << 20);
  expect_release();
}

TEST_F(LaneReplay, AnswersWithTheRecordedBytesByteForByteReceived) {
  replay(1);
  expect_release();
}

}  // namespace
}  // namespace sluice::reducer
