// A hostile peer floods the TLS stream with handshake messages that Sluice never sends. OpenSSL alone would
// consume and answer them for as long as they arrive.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "transport/tls/context.h"
#include "transport/tls/stream.h"

namespace sluice::transport::test {
namespace {

using ::testing::HasSubstr;

class TlsFloodFixture : public ::testing::Test {
 protected:
  static void save_client_ssl(const SSL* ssl, int /*where*/, int /*result*/) {
    client_ssl = const_cast<SSL*>(ssl);
  }

  void connect_pair(uint64_t rekey_after = 0) {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    std::array<char, 128> error{};
    for (int side = 0; side < 2; ++side) {
      contexts[side] = tls::make_context(
          {.server = side, .certificate = nullptr, .key = nullptr, .ca = nullptr, .rekey_after = rekey_after},
          error.data(), error.size());
      ASSERT_NE(contexts[side], nullptr) << error.data();
    }
    SSL_CTX_set_info_callback(contexts[0]->ssl, save_client_ssl);
    static constexpr std::array<unsigned char, 3> kName{'j', 'o', 'b'};
    static constexpr std::array<unsigned char, kSluiceTlsPskBytes> kKey{7};
    const SluiceTlsPeer peer{.identity = kName.data(),
                             .identity_bytes = kName.size(),
                             .psk = kKey.data(),
                             .host = nullptr,
                             .binding = nullptr,
                             .binding_bytes = 0};
    ASSERT_TRUE(client.open(*contexts[0], fds[0], peer)) << client.error.data();
    ASSERT_TRUE(server.open(*contexts[1], fds[1], peer)) << server.error.data();
    SluiceTlsStep a = kSluiceTlsWantsRead, b = kSluiceTlsWantsRead;
    for (int turn = 0; turn < 100 && (a != kSluiceTlsDone || b != kSluiceTlsDone); ++turn) {
      if (a != kSluiceTlsDone) a = client.handshake();
      if (b != kSluiceTlsDone) b = server.handshake();
    }
    ASSERT_EQ(a, kSluiceTlsDone) << client.error.data();
    ASSERT_EQ(b, kSluiceTlsDone) << server.error.data();
  }
  ~TlsFloodFixture() override {
    for (const int fd : fds) ::close(fd);
    for (SluiceTlsContext* const c : contexts) tls::free_context(c);
  }

  void send_text(std::string_view text) {
    const iovec block{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
    ASSERT_EQ(client.send({&block, 1}), static_cast<ssize_t>(text.size()));
  }
  ssize_t receive_text() {
    const iovec block{.iov_base = received.data(), .iov_len = received.size()};
    return server.receive({&block, 1});
  }
  static void update_key(int request) {
    ASSERT_EQ(SSL_key_update(client_ssl, request), 1);
    ASSERT_EQ(SSL_do_handshake(client_ssl), 1);
  }
  void expect_refused() {
    errno = 0;
    EXPECT_EQ(receive_text(), -1);
    EXPECT_EQ(errno, ECONNRESET);
    EXPECT_THAT(server.error.data(), HasSubstr("repeated key updates"));
  }

  static SSL* client_ssl;
  std::array<int, 2> fds{-1, -1};
  std::array<SluiceTlsContext*, 2> contexts{};
  SluiceTlsStream client, server;
  std::array<char, 4096> received{};
};

SSL* TlsFloodFixture::client_ssl = nullptr;

TEST_F(TlsFloodFixture, AcceptsAKeyUpdateBeforeEachRecord) {
  ASSERT_NO_FATAL_FAILURE(connect_pair(1));
  for (int i = 0; i < 200; ++i) {
    ASSERT_NO_FATAL_FAILURE(send_text("some words"));
    ASSERT_EQ(receive_text(), 10) << server.error.data();
  }
}

TEST_F(TlsFloodFixture, RefusesARequestForAKeyUpdate) {
  ASSERT_NO_FATAL_FAILURE(connect_pair());
  ASSERT_NO_FATAL_FAILURE(update_key(SSL_KEY_UPDATE_REQUESTED));
  ASSERT_NO_FATAL_FAILURE(send_text("words"));
  expect_refused();
}

TEST_F(TlsFloodFixture, RefusesKeyUpdatesWithoutDataBetweenThem) {
  ASSERT_NO_FATAL_FAILURE(connect_pair());
  for (int i = 0; i < 1000; ++i) ASSERT_NO_FATAL_FAILURE(update_key(SSL_KEY_UPDATE_NOT_REQUESTED));
  ASSERT_NO_FATAL_FAILURE(send_text("words"));
  expect_refused();
  EXPECT_TRUE(server.has_ended());
}

}  // namespace
}  // namespace sluice::transport::test
