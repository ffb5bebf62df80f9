// The TLS handshake, and the effect of invalid records.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "core/clock.h"
#include "tests/conformance/transport/tls_pair.h"
#include "tests/conformance/transport/transport_fixture.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::transport::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TlsHandshakeFixture : public testing::Test {
 protected:
  void SetUp() override {
    if (!use_built_tls_library()) GTEST_SKIP() << "needs tls-library: libsluice_tls.so was not built";
    config = shared_key_config();
  }
  // Expects a failed handshake. At least one side reports an error.
  [[nodiscard]] TlsPair expect_failure() const {
    TlsPair pair = tls_pair("127.0.0.1", config);
    EXPECT_FALSE(pair.client.valid());
    EXPECT_FALSE(pair.client_error.empty() && pair.server_error.empty());
    return pair;
  }
  TlsTestConfig config;
};

TEST_F(TlsHandshakeFixture, AcceptsTheSameKey) {
  const TlsPair pair = tls_pair("127.0.0.1", config);
  EXPECT_TRUE(pair.client.valid()) << pair.client_error << pair.server_error;
}

TEST_F(TlsHandshakeFixture, RefusesAnotherKey) {
  config.client_peer.psk->front() = std::byte{8};
  (void)expect_failure();
}

TEST_F(TlsHandshakeFixture, RefusesAnotherIdentity) {
  config.client_peer.identity = "another job";
  (void)expect_failure();
}

TEST_F(TlsHandshakeFixture, RefusesAServerWithoutKeyAndCertificate) {
  config.server_peer.psk.reset();
  (void)expect_failure();
}

TEST_F(TlsHandshakeFixture, RefusesADifferentBinding) {
  const std::array<std::byte, 32> sent{std::byte{1}}, received{std::byte{2}};
  config.client_peer.binding = sent;
  config.server_peer.binding = sent;
  EXPECT_TRUE(tls_pair("127.0.0.1", config).client.valid());
  config.server_peer.binding = received;
  EXPECT_THAT(expect_failure().server_error, Not(HasSubstr("certificate")));
  config.server_peer.binding = {};
  (void)expect_failure();
}

TEST_F(TlsHandshakeFixture, AClientNeedsAKeyOrACertificateAuthority) {
  config.client_peer.psk.reset();
  const TlsPair pair = tls_pair("127.0.0.1", config);
  EXPECT_THAT(pair.client_error, HasSubstr("neither a token nor a certificate authority"));
}

// So a client tries again. A peer that refuses the client sends an alert first.
TEST_F(TlsHandshakeFixture, APeerThatEndsIsAReset) {
  for (const bool is_closed : {false, true}) {
    std::array<int, 2> fds{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    tcp::Socket client(fds[0]), server(fds[1]);
    if (is_closed) {
      server = tcp::Socket();  // the client cannot even send
    } else {
      ASSERT_EQ(::shutdown(server.fd(), SHUT_WR), 0);
    }
    const auto result =
        tcp::tls_handshake(client, *config.client, config.client_peer, monotonic_now() + 10 * kSecond);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::kReset) << result.error().text;
  }
}

// Sends bytes below TLS through `raw`, a copy of the server's descriptor.
class TlsRecordsFixture : public PairFixture {
 protected:
  void SetUp() override {
    TransportTestBed test_bed = make_test_bed("tls");
    if (!test_bed.skip_reason.empty()) GTEST_SKIP() << test_bed.skip_reason;
    test_bed.connect = [connect = test_bed.connect, this](Handler& a, Handler& b, const EndpointOptions& o) {
      return raw < 0 ? connect_raw(a, b, o) : connect(a, b, o);
    };
    build(std::move(test_bed));
  }
  void TearDown() override {
    PairFixture::TearDown();
    if (raw >= 0) ::close(raw);
  }
  std::pair<Endpoint*, Endpoint*> connect_raw(Handler& a, Handler& b, const EndpointOptions& o) {
    TlsPair pair = tls_pair("127.0.0.1", shared_key_config());
    raw = ::dup(pair.server.fd());
    return adopt_pair({std::move(pair.client), std::move(pair.server)}, *test_bed_.a, a, *test_bed_.b, b, o);
  }
  // Sends these bytes to the client and expects a reset.
  void expect_reset(std::string_view bytes) {
    ASSERT_EQ(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    expect_left_reset();
  }
  void expect_left_reset() {
    ASSERT_TRUE(poll_until([&] { return left.closed.has_value(); }));
    EXPECT_EQ(*left.closed, Errc::kReset);
    if (!right.closed) right.close(Errc::kClosed);
    EXPECT_TRUE(poll_until([&] { return both_closed(); }));
  }
  int raw = -1;
};

TEST_F(TlsRecordsFixture, AForgedRecordClosesTheEndpoint) {
  expect_reset(std::string("\x17\x03\x03\x00\x40", 5) + std::string(64, 'x'));
}

TEST_F(TlsRecordsFixture, ATooLongRecordClosesTheEndpoint) {
  expect_reset(std::string("\x17\x03\x03\xff\xff", 5));
}

TEST_F(TlsRecordsFixture, InvalidBytesCloseTheEndpoint) {
  expect_reset("GET / HTTP/1.1\r\n\r\n");
}

TEST_F(TlsRecordsFixture, AnEndWithinARecordIsAReset) {
  ASSERT_EQ(::send(raw, "\x17\x03\x03\x00\x40xxxx", 9, MSG_NOSIGNAL), 9);
  ::shutdown(raw, SHUT_WR);
  expect_left_reset();
}

// The end of TCP is not authenticated, so an orderly end needs the close_notify of TLS.
TEST_F(TlsRecordsFixture, AnEndWithoutCloseNotifyIsAReset) {
  ::shutdown(raw, SHUT_WR);
  expect_left_reset();
}

}  // namespace
}  // namespace sluice::transport::test
