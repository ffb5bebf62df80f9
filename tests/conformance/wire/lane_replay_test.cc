// Replays the client bytes of the recorded exchange to a real lane over sockets. The lane must answer with
// the recorded bytes of the reducer.
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
#include "transport/tcp/blocking_io.h"
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

class LaneReplayFixture : public testing::Test {
 protected:
  LaneReplayFixture() {
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

  void send(Rank rank, std::span<const std::byte> bytes, size_t part_bytes) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(part_bytes, bytes.size()));
      ASSERT_TRUE(transport::tcp::write_all(clients_[rank], part, monotonic_now() + 10 * kSecond).ok());
      settle();
      bytes = bytes.subspan(part.size());
    }
  }

  Bytes receive(Rank rank, size_t size) {
    Bytes out(size);
    EXPECT_TRUE(transport::tcp::read_exact(clients_[rank], out, monotonic_now() + 10 * kSecond).ok());
    return out;
  }

  bool receives_nothing(Rank rank) const {
    std::byte b{};
    return ::recv(clients_[rank].fd(), &b, 1, MSG_DONTWAIT) < 0;
  }

  // Replays the recorded frames of the lane connections, starting with COMMIT. Client frames are sent in
  // parts of `part_bytes` bytes.
  void replay(size_t part_bytes) {
    unsigned results = 0;
    for (const test::RecordedFrame& frame :
         test::read_exchange(std::string(SLUICE_VECTORS) + "/v1_exchange.hex")) {
      if (!frame.connection.starts_with("lane")) continue;
      SCOPED_TRACE(frame.connection + ' ' + frame.name);
      const Rank rank = frame.connection == "lane0" ? 0 : 1;
      // The delays that the remarks of the file state.
      if (frame.name == "CONTRIBUTION 0 of rank 1") now_ += 1500 * kMicrosecond;
      if (frame.name == "CONTRIBUTION 2 of rank 0") now_ += 5000 * kSecond;
      if (frame.to_reducer) {
        if (frame.name != "COMMIT" && !frame.name.starts_with("CONTRIBUTION"))
          continue;  // handled by the control loop
        ASSERT_TRUE(receives_nothing(rank)) << "the lane sent a frame too early";
        send(rank, frame.bytes, part_bytes);
      } else if (frame.name.starts_with("RESULT")) {
        ASSERT_EQ(receive(rank, frame.bytes.size()), frame.bytes);
        ++results;
      } else if (frame.name == "ABORT") {
        session_->set_end_message({frame.bytes.begin() + wire::kHeaderBytes, frame.bytes.end()});
        ASSERT_TRUE(lane_->command({.kind = LaneCommand::Kind::kEnd, .session = session_.get()}));
        settle();
        ASSERT_EQ(receive(rank, frame.bytes.size()), frame.bytes);
      }
    }
    EXPECT_EQ(results, 6u);
  }

  // Expects the events of the lane: both connections closed in order, then the session released.
  void expect_release() {
    for (Socket& client : clients_) {
      std::array<std::byte, 4096> remaining;  // rank 1 receives its ABORT too
      while (::recv(client.fd(), remaining.data(), remaining.size(), 0) > 0) {
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

TEST_F(LaneReplayFixture, AnswersWithTheRecordedBytes) {
  replay(1 << 20);
  expect_release();
}

TEST_F(LaneReplayFixture, AnswersWithTheRecordedBytesWhenFedByteByByte) {
  replay(1);
  expect_release();
}

}  // namespace
}  // namespace sluice::reducer
