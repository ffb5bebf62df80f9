#include "gpu_client/engine/control/control_connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

namespace sluice::engine {
namespace {

class ControlConnectionTest : public ::testing::Test {
 protected:
  ControlConnectionTest() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    connection_ = std::make_unique<ControlConnection>(transport::tcp::Socket(fds[0]), "reducer x", 42);
    peer_ = transport::tcp::Socket(fds[1]);
  }
  void write(std::span<const std::byte> bytes) {
    ASSERT_EQ(::write(peer_.fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  Status receive() { return connection_->receive(frame_); }
  static std::vector<std::byte> heartbeat() {
    wire::Heartbeat beat;
    beat.count = 9;
    beat.missing = {1, 2, 3};
    return wire::encode_message(beat, 42);
  }

  std::unique_ptr<ControlConnection> connection_;
  transport::tcp::Socket peer_;
  ControlConnection::Frame frame_;
};

TEST_F(ControlConnectionTest, ReceivesAFrameByteByByte) {
  const auto bytes = heartbeat();
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(receive().code(), Errc::kWouldBlock) << i;
    write(std::span(bytes).subspan(i, 1));
  }
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(frame_.header.type, wire::FrameType::kHeartbeat);
  wire::Heartbeat beat;
  ASSERT_TRUE(wire::decode_body(frame_.body, beat).ok());
  EXPECT_EQ(beat.count, 9u);
  EXPECT_EQ(receive().code(), Errc::kWouldBlock);
}

TEST_F(ControlConnectionTest, ReceivesConsecutiveFramesAndAFrameWithoutBody) {
  write(wire::encode_message(wire::LeaveAck{}, 42));
  write(heartbeat());
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(frame_.header.type, wire::FrameType::kLeaveAck);
  EXPECT_TRUE(frame_.body.empty());
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(frame_.header.type, wire::FrameType::kHeartbeat);
}

TEST_F(ControlConnectionTest, RejectsDamagedFramesWithTheCause) {
  const struct {
    size_t byte;
    Errc code;
  } cases[] = {
      {0, Errc::kBadMagic}, {4, Errc::kBadVersion}, {12, Errc::kBadHeaderCrc}, {70, Errc::kBadPayloadCrc}};
  for (const auto& c : cases) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ControlConnection connection(transport::tcp::Socket{fds[0]}, "x", 1);
    const transport::tcp::Socket peer(fds[1]);
    auto bytes = heartbeat();
    bytes[c.byte] ^= std::byte{0x40};
    ASSERT_EQ(::write(peer.fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(connection.receive(frame_).code(), c.code) << c.byte;
  }
}

TEST_F(ControlConnectionTest, RejectsDataFrames) {
  wire::FrameHeader h;
  h.type = wire::FrameType::kResult;
  h.kind = wire::Kind::kAllreduce;
  h.length = 1;
  std::array<std::byte, wire::kHeaderBytes> raw;
  wire::encode_header(h, {}, raw);
  write(raw);
  EXPECT_EQ(receive().code(), Errc::kUnexpectedMessage);
}

TEST_F(ControlConnectionTest, DistinguishesAnOrderlyEndFromAnIncompleteFrame) {
  const auto bytes = heartbeat();
  write(bytes);
  ::shutdown(peer_.fd(), SHUT_WR);
  EXPECT_TRUE(receive().ok());
  EXPECT_EQ(receive().code(), Errc::kClosed);

  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  ControlConnection connection(transport::tcp::Socket{fds[0]}, "x", 1);
  {
    const transport::tcp::Socket peer(fds[1]);
    ASSERT_EQ(::write(peer.fd(), bytes.data(), 70), 70);
  }
  EXPECT_EQ(connection.receive(frame_).code(), Errc::kReset);
}

TEST_F(ControlConnectionTest, KeepsUnsentBytesUpToALimit) {
  wire::Abort abort;
  abort.text = std::string(1000, 'x');
  Status status;
  int accepted = 0;
  while ((status = connection_->send(abort)).ok()) ASSERT_LT(++accepted, 100'000);
  EXPECT_EQ(status.code(), Errc::kWouldBlock);
  EXPECT_TRUE(connection_->has_unsent());
  // Every accepted frame arrives completely.
  std::vector<std::byte> got;
  std::array<std::byte, 4096> buffer;
  const size_t whole = wire::encode_message(abort, 42).size();
  while (got.size() < whole * static_cast<size_t>(accepted)) {
    const ssize_t n = ::read(peer_.fd(), buffer.data(), buffer.size());
    if (n > 0) got.insert(got.end(), buffer.begin(), buffer.begin() + n);
    ASSERT_TRUE(connection_->flush().ok());
  }
  EXPECT_FALSE(connection_->has_unsent());
}

TEST_F(ControlConnectionTest, EndsOnRandomDamage) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ControlConnection connection(transport::tcp::Socket{fds[0]}, "x", 1);
    auto bytes = heartbeat();
    for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    {
      const transport::tcp::Socket peer(fds[1]);
      ASSERT_EQ(::write(peer.fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    Status status;
    for (int k = 0; k < 10 && status.ok(); ++k) status = connection.receive(frame_);
    EXPECT_FALSE(status.ok()) << "receive() must return an error";
  }
}

}  // namespace
}  // namespace sluice::engine
