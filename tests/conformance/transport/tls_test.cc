// What TLS adds to a transport: who gets through the handshake, and what damaged records do.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "tests/conformance/transport/fixture.h"
#include "tests/conformance/transport/tls_pair.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::transport::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TlsHandshake : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_tls_library()) GTEST_SKIP() << "needs tls-library: libsluice_tls.so was not built";
    terms = same_key();
  }
  // Both sides see it fail, or one of them does and the other would at its next word.
  [[nodiscard]] TlsPair expect_failure() const {
    TlsPair pair = tls_pair("127.0.0.1", terms);
    EXPECT_FALSE(pair.client.valid());
    EXPECT_FALSE(pair.client_why.empty() && pair.server_why.empty());
    return pair;
  }
  TlsTerms terms;
};

TEST_F(TlsHandshake, TheSameKeyGetsThrough) {
  const TlsPair pair = tls_pair("127.0.0.1", terms);
  EXPECT_TRUE(pair.client.valid()) << pair.client_why << pair.server_why;
}

TEST_F(TlsHandshake, AnotherKeyDoesNot) {
  terms.of_client.psk->front() = std::byte{8};
  (void)expect_failure();
}

TEST_F(TlsHandshake, AnotherIdentityDoesNot) {
  terms.of_client.identity = "another job";
  (void)expect_failure();
}

TEST_F(TlsHandshake, AServerWithNeitherKeyNorCertificateDoesNot) {
  terms.of_server.psk.reset();
  (void)expect_failure();
}

TEST_F(TlsHandshake, OtherWordsBeforeItAreFoundOut) {
  const std::array<std::byte, 32> said{std::byte{1}}, heard{std::byte{2}};
  terms.of_client.bound = said;
  terms.of_server.bound = said;
  EXPECT_TRUE(tls_pair("127.0.0.1", terms).client.valid());
  terms.of_server.bound = heard;
  EXPECT_THAT(expect_failure().server_why, Not(HasSubstr("certificate")));
  terms.of_server.bound = {};
  (void)expect_failure();
}

TEST_F(TlsHandshake, AClientThatKnowsTheServerByNothingIsNotMade) {
  terms.of_client.psk.reset();
  const TlsPair pair = tls_pair("127.0.0.1", terms);
  EXPECT_THAT(pair.client_why, HasSubstr("neither a token nor a certificate authority"));
}

// Writes beneath TLS: `raw` is the server's descriptor.
class TlsRecords : public PairTest {
 protected:
  void SetUp() override {
    Bed bed = make_bed("tls");
    if (!bed.missing.empty()) GTEST_SKIP() << bed.missing;
    bed.connect = [join = bed.connect, this](Handler& a, Handler& b, const EndpointOptions& o) {
      return raw < 0 ? join_raw(a, b, o) : join(a, b, o);
    };
    build(std::move(bed));
  }
  void TearDown() override {
    PairTest::TearDown();
    if (raw >= 0) ::close(raw);
  }
  std::pair<Endpoint*, Endpoint*> join_raw(Handler& a, Handler& b, const EndpointOptions& o) {
    TlsPair pair = tls_pair("127.0.0.1", same_key());
    raw = ::dup(pair.server.fd());
    auto* const at_a = static_cast<tcp::TcpContext*>(bed_.a.get());
    auto* const at_b = static_cast<tcp::TcpContext*>(bed_.b.get());
    return {*at_a->adopt(std::move(pair.client), a, o), *at_b->adopt(std::move(pair.server), b, o)};
  }
  // What the client makes of these bytes from its peer.
  void expect_reset(std::string_view bytes) {
    ASSERT_EQ(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    expect_break();
  }
  void expect_break() {
    ASSERT_TRUE(drive_until([&] { return left.closed.has_value(); }));
    EXPECT_EQ(*left.closed, Errc::kReset);
    if (!right.closed) right.close(Errc::kClosed);
    EXPECT_TRUE(drive_until([&] { return over(); }));
  }
  int raw = -1;
};

TEST_F(TlsRecords, AForgedRecordEndsThatEndpoint) {
  expect_reset(std::string("\x17\x03\x03\x00\x40", 5) + std::string(64, 'x'));
}

TEST_F(TlsRecords, ARecordThatIsTooLongEndsThatEndpoint) {
  expect_reset(std::string("\x17\x03\x03\xff\xff", 5));
}

TEST_F(TlsRecords, RubbishEndsThatEndpoint) {
  expect_reset("GET / HTTP/1.1\r\n\r\n");
}

TEST_F(TlsRecords, AnEndWithinARecordIsABreak) {
  ASSERT_EQ(::send(raw, "\x17\x03\x03\x00\x40xxxx", 9, MSG_NOSIGNAL), 9);
  ::shutdown(raw, SHUT_WR);
  expect_break();
}

// The end of TCP alone could be anybody's: an end in order is said in TLS.
TEST_F(TlsRecords, AnEndThatTlsDoesNotSayIsABreak) {
  ::shutdown(raw, SHUT_WR);
  expect_break();
}

}  // namespace
}  // namespace sluice::transport::test
