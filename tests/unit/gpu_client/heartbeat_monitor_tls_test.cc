// No event announces frames that TLS has decrypted ahead. The monitor must receive them nevertheless.
#include <gtest/gtest.h>

#include "tests/conformance/transport/tls_pair.h"
#include "tests/unit/gpu_client/heartbeat_monitor_fixture.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::engine {
namespace {

class HeartbeatMonitorTlsTest : public test::HeartbeatMonitorFixture {
 protected:
  void SetUp() override {
    if (!transport::test::use_built_tls_library())
      GTEST_SKIP() << "needs tls-library: libsluice_tls.so was not built";
  }
};

TEST_F(HeartbeatMonitorTlsTest, ReceivesEveryFrameThatTlsHasReadAhead) {
  auto pair = transport::test::tls_pair("127.0.0.1", transport::test::shared_key_config());
  ASSERT_TRUE(pair.client.valid());
  std::vector<std::byte> frames;
  const auto add = [&frames](const std::vector<std::byte>& frame) {
    frames.insert(frames.end(), frame.begin(), frame.end());
  };
  // More than the monitor receives in a row.
  for (int i = 0; i < 200; ++i) add(wire::encode_message(wire::Heartbeat{}));
  wire::Abort abort;
  abort.code = Errc::kMismatch;
  abort.text = "last frame";
  add(wire::encode_message(abort));
  const Nanos deadline = monotonic_now() + 10 * kSecond;
  ASSERT_TRUE(transport::tcp::write_all(pair.server, frames, deadline).ok());

  // Like the handshake, the test receives one frame before the monitor gets the connection.
  ControlConnection connection(std::move(pair.client), "reducer", 1);
  ControlConnection::Frame first;
  while (connection.receive(first) == Errc::kWouldBlock) {
    ASSERT_LT(monotonic_now(), deadline);
    pollfd p{.fd = connection.fd(), .events = POLLIN, .revents = 0};
    ::poll(&p, 1, 100);
  }
  ASSERT_EQ(first.header.type, wire::FrameType::kHeartbeat);
  pollfd rest{.fd = connection.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&rest, 1, 0), 0) << "bytes are left in the socket, so the test has no effect";

  monitor_ = HeartbeatMonitor::acquire().value();
  std::vector<ControlPeer> peers;
  peers.push_back({.connection = std::move(connection), .heartbeat = 20 * kSecond, .timeout = 60 * kSecond});
  id_ = monitor_->add(std::move(peers), *this, false);
  EXPECT_TRUE(wait([&] { return losses_ == 1; }));
  EXPECT_EQ(code_, Errc::kMismatch);
}

}  // namespace
}  // namespace sluice::engine
