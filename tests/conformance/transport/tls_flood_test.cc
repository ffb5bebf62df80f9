// Messages of TLS that no peer of ours sends, by a peer that does: OpenSSL alone would read over them for as
// long as they come, and answer.
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

class TlsFlood : public ::testing::Test {
 protected:
  static void note(const SSL* ssl, int /*where*/, int /*result*/) { client_ssl = const_cast<SSL*>(ssl); }

  void join(uint64_t rekey_after = 0) {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    std::array<char, 128> why{};
    for (int side = 0; side < 2; ++side) {
      contexts[side] = tls::make_context(
          {.server = side, .certificate = nullptr, .key = nullptr, .ca = nullptr, .rekey_after = rekey_after},
          why.data(), why.size());
      ASSERT_NE(contexts[side], nullptr) << why.data();
    }
    SSL_CTX_set_info_callback(contexts[0]->ssl, note);
    static constexpr std::array<unsigned char, 3> kName{'j', 'o', 'b'};
    static constexpr std::array<unsigned char, kSluiceTlsPskBytes> kKey{7};
    const SluiceTlsPeer peer{.identity = kName.data(),
                             .identity_bytes = kName.size(),
                             .psk = kKey.data(),
                             .host = nullptr,
                             .bound = nullptr,
                             .bound_bytes = 0};
    ASSERT_TRUE(client.open(*contexts[0], fds[0], peer)) << client.why.data();
    ASSERT_TRUE(server.open(*contexts[1], fds[1], peer)) << server.why.data();
    SluiceTlsStep a = kSluiceTlsWantsRead, b = kSluiceTlsWantsRead;
    for (int turn = 0; turn < 100 && (a != kSluiceTlsDone || b != kSluiceTlsDone); ++turn) {
      if (a != kSluiceTlsDone) a = client.handshake();
      if (b != kSluiceTlsDone) b = server.handshake();
    }
    ASSERT_EQ(a, kSluiceTlsDone) << client.why.data();
    ASSERT_EQ(b, kSluiceTlsDone) << server.why.data();
  }
  ~TlsFlood() override {
    for (const int fd : fds) ::close(fd);
    for (SluiceTlsContext* const c : contexts) tls::free_context(c);
  }

  void say(std::string_view words) {
    const iovec block{.iov_base = const_cast<char*>(words.data()), .iov_len = words.size()};
    ASSERT_EQ(client.send({&block, 1}), static_cast<ssize_t>(words.size()));
  }
  ssize_t hear() {
    const iovec block{.iov_base = heard.data(), .iov_len = heard.size()};
    return server.receive({&block, 1});
  }
  static void new_key(int asking) {
    ASSERT_EQ(SSL_key_update(client_ssl, asking), 1);
    ASSERT_EQ(SSL_do_handshake(client_ssl), 1);
  }
  void expect_refused() {
    errno = 0;
    EXPECT_EQ(hear(), -1);
    EXPECT_EQ(errno, ECONNRESET);
    EXPECT_THAT(server.why.data(), HasSubstr("new keys for nothing"));
  }

  static SSL* client_ssl;
  std::array<int, 2> fds{-1, -1};
  std::array<SluiceTlsContext*, 2> contexts{};
  SluiceTlsStream client, server;
  std::array<char, 4096> heard{};
};

SSL* TlsFlood::client_ssl = nullptr;

TEST_F(TlsFlood, ANewKeyBeforeEachRecordIsBorne) {
  ASSERT_NO_FATAL_FAILURE(join(1));
  for (int i = 0; i < 200; ++i) {
    ASSERT_NO_FATAL_FAILURE(say("some words"));
    ASSERT_EQ(hear(), 10) << server.why.data();
  }
}

TEST_F(TlsFlood, WhoAsksForAKeyIsRefused) {
  ASSERT_NO_FATAL_FAILURE(join());
  ASSERT_NO_FATAL_FAILURE(new_key(SSL_KEY_UPDATE_REQUESTED));
  ASSERT_NO_FATAL_FAILURE(say("words"));
  expect_refused();
}

TEST_F(TlsFlood, NewKeysWithoutDataBetweenAreRefused) {
  ASSERT_NO_FATAL_FAILURE(join());
  for (int i = 0; i < 1000; ++i) ASSERT_NO_FATAL_FAILURE(new_key(SSL_KEY_UPDATE_NOT_REQUESTED));
  ASSERT_NO_FATAL_FAILURE(say("words"));
  expect_refused();
  EXPECT_TRUE(server.over());
}

}  // namespace
}  // namespace sluice::transport::test
