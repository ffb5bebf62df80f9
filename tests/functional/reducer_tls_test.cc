// What strangers do to the handshake of TLS at a reducer, and that a session beside it feels nothing.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gpu_client/engine/greeting.h"
#include "tests/conformance/transport/tls_pair.h"
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

class ReducerTls : public ReducerTest {
 protected:
  void SetUp() override {
    if (!transport::test::find_tls_library())
      GTEST_SKIP() << "needs tls-library: libsluice_tls.so was not built";
    std::string name = testing::TempDir() + "sluice-tls-XXXXXX";
    const transport::tcp::Socket file(::mkstemp(name.data()));
    ASSERT_TRUE(file.valid());
    key_file_ = name;
    const std::string digits(64, 'a');
    ASSERT_EQ(::write(file.fd(), digits.data(), digits.size()), 64);
    reducer::ReducerOptions o = short_deadlines();
    o.key_file = key_file_;
    o.tls = reducer::TlsMode::kOn;
    start(o);
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
  // HELLO and WELCOME of one who offers TLS.
  ScriptedConnection greeted() {
    ScriptedConnection c(port());
    EXPECT_NE(c.greet(hello()).features & wire::kFeatureTls, 0u);
    return c;
  }
  // One that asks for the status as it should.
  Result<std::string> ask(const wire::Digest& with) {
    engine::Identity who;
    who.token = with;
    auto context = transport::tcp::TlsContext::make(false, {});
    if (!context) return tl::unexpected(context.error());
    who.tls =
        std::make_shared<const engine::TlsTerms>(engine::TlsTerms{.required = true, .context = *context});
    auto g = engine::greet({.host = "127.0.0.1", .port = port()}, who, wire::Purpose::kStatus, 0, 0,
                           monotonic_now() + 10 * kSecond);
    if (!g) return tl::unexpected(g.error());
    auto reply = engine::ask<wire::StatusReply>(*g, wire::StatusQuery{.mac = engine::proof(*g, who, 0)},
                                                monotonic_now() + 10 * kSecond);
    if (!reply) return tl::unexpected(reply.error());
    return reply->json;
  }
  void expect_healthy() {
    const auto answer = ask(token());
    ASSERT_TRUE(answer) << answer.error().text;
    EXPECT_GE(nlohmann::json::parse(*answer)["tls"]["agreed"], 1);
  }

 private:
  std::string key_file_;
};

TEST_F(ReducerTls, RubbishInTheHandshakeEndsThatConnection) {
  ScriptedConnection c = greeted();
  c.send_text(std::string(500, 'x'));
  EXPECT_TRUE(c.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "unauthenticated"));
  EXPECT_TRUE(eventually_counted("tls", "failed"));
  expect_healthy();
}

TEST_F(ReducerTls, ARecordThatIsTooLongEndsThatConnection) {
  ScriptedConnection c = greeted();
  c.send_bytes(std::as_bytes(std::span("\x16\x03\x01\xff\xff\x01", 6)));
  EXPECT_TRUE(c.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("tls", "failed"));
  expect_healthy();
}

TEST_F(ReducerTls, AHandshakeThatStallsMeetsTheHandshakeDeadline) {
  ScriptedConnection silent = greeted();
  ScriptedConnection slow = greeted();
  slow.send_bytes(std::as_bytes(std::span("\x16\x03\x01", 3)));
  EXPECT_TRUE(silent.closed_within(10 * kSecond));
  EXPECT_TRUE(slow.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "timeout", 2));
  expect_healthy();
}

TEST_F(ReducerTls, AFrameInPlainWhereTlsWasAgreedOnIsRefused) {
  ScriptedConnection c = greeted();
  c.send(wire::StatusQuery{.mac = c.proof(token(), 0)});
  EXPECT_TRUE(c.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("tls", "failed"));
  expect_healthy();
}

TEST_F(ReducerTls, WithoutTheBitEverythingGoesInPlain) {
  ScriptedConnection c(port());
  wire::Hello plain = hello();
  plain.features = 0;
  EXPECT_NE(c.greet(plain).features & wire::kFeatureTls, 0u) << "offered to everybody";
  c.send(wire::StatusQuery{.mac = c.proof(token(), 0)});
  EXPECT_FALSE(c.expect<wire::StatusReply>().json.empty());
}

// The proof of the token covers the feature bits: who takes one away on the path is found out.
TEST_F(ReducerTls, ABitThatIsTakenAwayOnThePathIsFoundOut) {
  ScriptedConnection c(port());
  wire::Hello stripped = hello();
  stripped.features = 0;
  const wire::Welcome welcome = c.greet(stripped);
  EXPECT_TRUE(wire::equal_digests(welcome.mac, wire::server_proof(token(), stripped, welcome)));
  EXPECT_FALSE(wire::equal_digests(welcome.mac, wire::server_proof(token(), hello(), welcome)));
  wire::Welcome without = welcome;
  without.features = 0;
  EXPECT_FALSE(wire::equal_digests(welcome.mac, wire::server_proof(token(), stripped, without)));
}

TEST_F(ReducerTls, AnotherTokenGetsNowhere) {
  wire::Digest other = token();
  other[0] ^= 1;
  const auto answer = ask(other);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::kUnauthenticated);
  expect_healthy();
}

}  // namespace
}  // namespace sluice::test
