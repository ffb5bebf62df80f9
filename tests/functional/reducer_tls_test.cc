// Faulty clients in the TLS handshake of a reducer, which must keep serving others.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gpu_client/engine/join/handshake.h"
#include "tests/conformance/transport/tls_pair.h"
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

class ReducerTlsTest : public ReducerTest {
 protected:
  void SetUp() override {
    if (!transport::test::use_built_tls_library())
      GTEST_SKIP() << "needs tls-library: libsluice_tls.so was not built";
    std::string name = testing::TempDir() + "sluice-tls-XXXXXX";
    const transport::tcp::Socket file(::mkstemp(name.data()));
    ASSERT_TRUE(file.valid());
    key_file_ = name;
    const std::string digits(64, 'a');
    ASSERT_EQ(::write(file.fd(), digits.data(), digits.size()), 64);
    start(options());
  }
  [[nodiscard]] reducer::ReducerOptions options() const {
    reducer::ReducerOptions o = test_options();
    o.key_file = key_file_;
    o.tls = reducer::TlsMode::kOn;
    return o;
  }
  void TearDown() override {
    if (!key_file_.empty()) ::unlink(key_file_.c_str());
  }

  static wire::Digest token() {
    std::array<std::byte, 32> key;
    key.fill(std::byte{0xaa});
    return wire::job_token(key, "default");
  }
  static wire::Hello hello() {
    wire::Hello h;
    h.purpose = wire::Purpose::kStatus;
    h.features = wire::kFeatureTls;
    return h;
  }
  // A connection after HELLO and WELCOME that offers TLS.
  ScriptedConnection after_welcome() {
    ScriptedConnection c(port());
    EXPECT_NE(c.handshake(hello()).features & wire::kFeatureTls, 0u);
    return c;
  }
  // Queries the status with a correct client.
  Result<std::string> query_status(const wire::Digest& with_token) {
    engine::Identity identity;
    identity.token = with_token;
    auto context = transport::tcp::TlsContext::make(false, {});
    if (!context) return tl::unexpected(context.error());
    identity.tls = std::make_shared<const engine::TlsSettings>(
        engine::TlsSettings{.required = true, .context = *context});
    auto g = engine::connect_and_handshake({.host = "127.0.0.1", .port = port()}, identity,
                                           wire::Purpose::kStatus, 0, 0, monotonic_now() + 10 * kSecond);
    if (!g) return tl::unexpected(g.error());
    auto reply = engine::send_request<wire::StatusReply>(
        *g, wire::StatusQuery{.mac = engine::client_proof(*g, 0)}, monotonic_now() + 10 * kSecond);
    if (!reply) return tl::unexpected(reply.error());
    return reply->json;
  }
  void expect_healthy() {
    const auto answer = query_status(token());
    ASSERT_TRUE(answer) << answer.error().text;
    EXPECT_GE(nlohmann::json::parse(*answer)["tls"]["agreed"], 1);
  }

 private:
  std::string key_file_;
};

TEST_F(ReducerTlsTest, AHolderOfTheTokenMayLeaveDuringTheHandshake) {
  wire::Hello of_holder = hello();
  of_holder.key_id = wire::key_id(token(), of_holder.nonce);
  ScriptedConnection holder(port()), stranger(port());
  (void)holder.handshake(of_holder);
  holder.close();
  EXPECT_TRUE(eventually_counted("tls", "failed"));
  EXPECT_FALSE(status()["refused"].contains("unauthenticated"));
  (void)stranger.handshake(hello());
  stranger.close();
  EXPECT_TRUE(eventually_counted("refused", "unauthenticated"));
}

TEST_F(ReducerTlsTest, GarbageInTheHandshakeClosesTheConnection) {
  ScriptedConnection c = after_welcome();
  c.send_text(std::string(500, 'x'));
  EXPECT_TRUE(c.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "unauthenticated"));
  EXPECT_TRUE(eventually_counted("tls", "failed"));
  expect_healthy();
}

TEST_F(ReducerTlsTest, AnOversizedRecordClosesTheConnection) {
  ScriptedConnection c = after_welcome();
  c.send_bytes(std::as_bytes(std::span("\x16\x03\x01\xff\xff\x01", 6)));
  EXPECT_TRUE(c.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("tls", "failed"));
  expect_healthy();
}

TEST_F(ReducerTlsTest, AStalledHandshakeTimesOut) {
  reducer::ReducerOptions impatient = options();
  impatient.handshake_timeout = 500 * kMillisecond;
  start(impatient);
  ScriptedConnection silent = after_welcome();
  ScriptedConnection slow = after_welcome();
  slow.send_bytes(std::as_bytes(std::span("\x16\x03\x01", 3)));
  EXPECT_TRUE(silent.closed_within(10 * kSecond));
  EXPECT_TRUE(slow.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "timeout", 2));
  expect_healthy();
}

TEST_F(ReducerTlsTest, APlaintextFrameAfterTlsWasAgreedIsRefused) {
  ScriptedConnection c = after_welcome();
  c.send(wire::StatusQuery{.mac = c.proof(token(), 0)});
  EXPECT_TRUE(c.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("tls", "failed"));
  expect_healthy();
}

TEST_F(ReducerTlsTest, WithoutTheFeatureTheConnectionStaysPlaintext) {
  ScriptedConnection c(port());
  wire::Hello plain = hello();
  plain.features = 0;
  EXPECT_NE(c.handshake(plain).features & wire::kFeatureTls, 0u) << "WELCOME always offers TLS";
  c.send(wire::StatusQuery{.mac = c.proof(token(), 0)});
  EXPECT_FALSE(c.expect<wire::StatusReply>().json.empty());
}

// The token's proof covers the feature bits, so removing one on the path is detected.
TEST_F(ReducerTlsTest, DetectsAFeatureRemovedOnThePath) {
  ScriptedConnection c(port());
  wire::Hello stripped = hello();
  stripped.features = 0;
  const wire::Welcome welcome = c.handshake(stripped);
  EXPECT_TRUE(wire::equal_digests(welcome.mac, wire::server_proof(token(), stripped, welcome)));
  EXPECT_FALSE(wire::equal_digests(welcome.mac, wire::server_proof(token(), hello(), welcome)));
  wire::Welcome without = welcome;
  without.features = 0;
  EXPECT_FALSE(wire::equal_digests(welcome.mac, wire::server_proof(token(), stripped, without)));
}

TEST_F(ReducerTlsTest, RefusesAnotherToken) {
  wire::Digest other = token();
  other[0] ^= 1;
  const auto answer = query_status(other);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::kUnauthenticated);
  expect_healthy();
}

}  // namespace
}  // namespace sluice::test
