#include "transport/tls/stream.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "transport/tls/error_text.h"

namespace {

constexpr char kProtocol[] = "sluice/1 ";
constexpr size_t kProtocolBytes = sizeof kProtocol - 1;
// Smaller blocks, such as frame headers and small payloads, are gathered into one record.
constexpr size_t kSmallBlock = 2048;

// Iterates over the bytes of blocks without changing them.
class Cursor {
 public:
  explicit Cursor(std::span<const iovec> blocks) noexcept : blocks_(blocks) { skip_empty_blocks(); }
  [[nodiscard]] bool done() const noexcept { return blocks_.empty(); }
  [[nodiscard]] const unsigned char* data() const noexcept {
    return static_cast<const unsigned char*>(blocks_.front().iov_base) + offset_;
  }
  [[nodiscard]] size_t left_in_block() const noexcept { return blocks_.front().iov_len - offset_; }
  void skip(size_t n) noexcept {
    while (n > 0 && !done()) {
      const size_t step = std::min(n, left_in_block());
      offset_ += step;
      n -= step;
      skip_empty_blocks();
    }
  }

 private:
  void skip_empty_blocks() noexcept {
    while (!blocks_.empty() && offset_ == blocks_.front().iov_len) {
      blocks_ = blocks_.subspan(1);
      offset_ = 0;
    }
  }
  std::span<const iovec> blocks_;
  size_t offset_ = 0;
};

bool is_address(const char* host) noexcept {
  std::array<unsigned char, sizeof(in6_addr)> raw;
  return ::inet_pton(AF_INET, host, raw.data()) == 1 || ::inet_pton(AF_INET6, host, raw.data()) == 1;
}

bool expect_host(SSL* ssl, const char* host) noexcept {
  if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
  return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

}  // namespace

SluiceTlsStream::~SluiceTlsStream() {
  SSL_free(ssl_);
  SSL_SESSION_free(psk_);
  std::free(ciphertext_);
}

bool SluiceTlsStream::prepare_psk(const unsigned char* psk) noexcept {
  static constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl_, kAes128GcmSha256);
  psk_ = SSL_SESSION_new();
  return cipher != nullptr && psk_ != nullptr &&
         SSL_SESSION_set1_master_key(psk_, psk, kSluiceTlsPskBytes) == 1 &&
         SSL_SESSION_set_cipher(psk_, cipher) == 1 &&
         SSL_SESSION_set_protocol_version(psk_, TLS1_3_VERSION) == 1;
}

bool SluiceTlsStream::open(const SluiceTlsContext& context, int fd, const SluiceTlsPeer& peer) noexcept {
  fd_ = fd;
  server_ = context.server;
  rekey_after_ = context.rekey_after;
  const auto invalid = [this](const char* text) {
    std::snprintf(error.data(), error.size(), "%s", text);
    return false;
  };
  if (peer.identity_bytes > identity_.size() || kProtocolBytes + peer.binding_bytes >= alpn_.size())
    return invalid("TLS identity or binding is too long");
  if (!server_ && peer.psk == nullptr && (!context.has_ca || peer.host == nullptr))
    return invalid(
        "cannot authenticate the server: neither a token nor a certificate authority is configured; set "
        "SLUICE_KEY_FILE, SLUICE_TOKEN_FILE or SLUICE_TLS_CA");
  ERR_clear_error();
  ssl_ = SSL_new(context.ssl);
  BIO* const bio = ssl_ == nullptr ? nullptr : sluice::tls::make_bio(*this);
  if (bio == nullptr) return invalid("out of memory");
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  identity_bytes_ = peer.identity_bytes;
  if (identity_bytes_ > 0) std::memcpy(identity_.data(), peer.identity, identity_bytes_);
  alpn_[0] = static_cast<unsigned char>(kProtocolBytes + peer.binding_bytes);
  std::memcpy(alpn_.data() + 1, kProtocol, kProtocolBytes);
  if (peer.binding_bytes > 0)
    std::memcpy(alpn_.data() + 1 + kProtocolBytes, peer.binding, peer.binding_bytes);
  alpn_bytes_ = size_t{1} + alpn_[0];
  bool ready = peer.psk == nullptr || prepare_psk(peer.psk);
  if (server_) {
    SSL_set_accept_state(ssl_);
  } else {
    SSL_set_connect_state(ssl_);
    ready = ready && SSL_set_alpn_protos(ssl_, alpn_.data(), static_cast<unsigned>(alpn_bytes_)) == 0 &&
            (peer.psk != nullptr || expect_host(ssl_, peer.host));
  }
  if (ready) return true;
  sluice::tls::format_error("cannot open a TLS stream", error.data(), error.size());
  return false;
}

void SluiceTlsStream::on(Event event) noexcept {
  using enum State;
  static constexpr State kNext[][6] = {
      // HandshakeDone, PeerCloses, SelfCloses, Flood, Error, ConnectionEnd
      {kOpen, kPeerClosed, kHandshake, kHandshake, kFailed, kLost},   // kHandshake
      {kOpen, kPeerClosed, kSelfClosed, kFlooded, kFailed, kLost},    // kOpen
      {kPeerClosed, kPeerClosed, kClosed, kFlooded, kFailed, kLost},  // kPeerClosed
      {kSelfClosed, kClosed, kSelfClosed, kFlooded, kFailed, kLost},  // kSelfClosed
      {kClosed, kClosed, kClosed, kFlooded, kFailed, kLost},          // kClosed
      {kFlooded, kFlooded, kFlooded, kFlooded, kFailed, kFailed},     // kFlooded
      {kFailed, kFailed, kFailed, kFailed, kFailed, kFailed},         // kFailed
      {kLost, kLost, kLost, kLost, kLost, kLost},                     // kLost
  };
  state_ = kNext[static_cast<size_t>(state_)][static_cast<size_t>(event)];
}

int SluiceTlsStream::fail(const char* what) noexcept {
  const Event event = sluice::tls::connection_ended() ? Event::kConnectionEnd : Event::kError;
  if (state_ == State::kFlooded) {
    std::snprintf(error.data(), error.size(),
                  "%s: unexpected handshake messages or repeated key updates from the peer", what);
  } else if (!has_failed()) {
    sluice::tls::format_error(ssl_, what, error.data(), error.size());
  }
  ERR_clear_error();
  on(event);
  return -1;
}

SluiceTlsStep SluiceTlsStream::failed_step() const noexcept {
  return state_ == State::kLost ? kSluiceTlsPeerEnded : kSluiceTlsFailed;
}

// Checks what OpenSSL does not require: the client names a protocol, the server uses the pre-shared key, if
// any.
bool SluiceTlsStream::check_negotiation() noexcept {
  const auto refuse = [this](const char* text) {
    std::snprintf(error.data(), error.size(), "TLS handshake: %s", text);
    on(Event::kError);
    return false;
  };
  const unsigned char* name = nullptr;
  unsigned bytes = 0;
  SSL_get0_alpn_selected(ssl_, &name, &bytes);
  if (!std::equal(alpn_.begin() + 1, alpn_.begin() + static_cast<ptrdiff_t>(alpn_bytes_), name, name + bytes))
    return refuse("HELLO or WELCOME was changed between the peers");
  if (!server_ && psk_ != nullptr && SSL_session_reused(ssl_) != 1)
    return refuse("the peer does not have the key of the job");
  return true;
}

// OpenSSL consumes handshake messages within one call for as long as they arrive, and answers each request
// for a key update at once. A peer that sends only such messages would occupy this thread and its memory.
// Sluice sends a key update only before data and never requests one, so any other message counts as a flood.
void SluiceTlsStream::on_record(bool is_data) noexcept {
  if (is_data) unused_key_ = false;
}

void SluiceTlsStream::on_handshake_message(std::span<const unsigned char> message) noexcept {
  if (state_ == State::kHandshake) return;
  const bool plain_update =
      message.size() == 5 && message[0] == SSL3_MT_KEY_UPDATE && message[4] == SSL_KEY_UPDATE_NOT_REQUESTED;
  if (!plain_update || std::exchange(unused_key_, true)) on(Event::kFlood);
}

SluiceTlsStep SluiceTlsStream::handshake() noexcept {
  if (has_failed()) return failed_step();
  short_read_ = false;
  ERR_clear_error();
  const bool is_first = state_ == State::kHandshake;
  const int done = is_first ? SSL_do_handshake(ssl_) : 1;
  const int ssl_error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_, done);
  if (done == 1 && is_first) {
    on(Event::kHandshakeDone);
    if (!check_negotiation()) return kSluiceTlsFailed;
  }
  if (done != 1 && ssl_error != SSL_ERROR_WANT_READ) static_cast<void>(fail("TLS handshake"));
  const Flush flushed = flush();  // sends an alert too
  if (has_failed() || flushed == Flush::kBroken) {
    static_cast<void>(fail("TLS handshake"));
    return failed_step();
  }
  if (flushed == Flush::kWouldBlock) return kSluiceTlsWantsWrite;
  return done == 1 ? kSluiceTlsDone : kSluiceTlsWantsRead;
}

ssize_t SluiceTlsStream::receive(std::span<const iovec> blocks) noexcept {
  ERR_clear_error();  // otherwise errors left by other code would look like errors of this call
  short_read_ = false;
  size_t total = 0;
  for (const iovec& block : blocks) {
    auto* const to = static_cast<unsigned char*>(block.iov_base);
    for (size_t have = 0; have < block.iov_len;) {
      size_t got = 0;
      if (!has_ended()) {
        const bool has_read = SSL_read_ex(ssl_, to + have, block.iov_len - have, &got) == 1;
        if (has_read && state_ != State::kFlooded) {
          have += got;
          total += got;
          continue;
        }
        const int ssl_error = state_ == State::kFlooded ? SSL_ERROR_SSL : SSL_get_error(ssl_, 0);
        if (ssl_error == SSL_ERROR_ZERO_RETURN) {
          on(Event::kPeerCloses);
        } else if (ssl_error != SSL_ERROR_WANT_READ) {
          static_cast<void>(fail("TLS"));
          // Sends the alert.
          if (ciphertext_begin_ != ciphertext_end_ && plaintext_bytes_ == 0) static_cast<void>(flush());
        }
      }
      if (total > 0) return static_cast<ssize_t>(total);
      if (peer_has_closed()) return 0;
      errno = has_failed() ? ECONNRESET : EAGAIN;
      return -1;
    }
  }
  return static_cast<ssize_t>(total);
}

bool SluiceTlsStream::encrypt(const void* data, size_t bytes) noexcept {
  if (records_ >= rekey_after_) {
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
    records_ = 0;
  }
  ++records_;
  size_t written = 0;
  // The ciphertext buffer accepts all bytes, so OpenSSL never keeps a partial record.
  if (SSL_write_ex(ssl_, data, bytes, &written) != 1 || written != bytes) return false;
  plaintext_bytes_ += bytes;
  return true;
}

ssize_t SluiceTlsStream::send(std::span<const iovec> blocks) noexcept {
  // Not a failure of TLS: bytes that the peer sent before the connection broke can still be received.
  const auto reset = [] {
    errno = ECONNRESET;
    return ssize_t{-1};
  };
  const auto broken = [&] {
    static_cast<void>(fail("TLS"));
    return reset();
  };
  if (has_failed()) return reset();
  if (self_has_closed()) return broken();
  ERR_clear_error();
  Cursor at(blocks);
  at.skip(plaintext_bytes_);
  size_t total = 0;
  for (;;) {
    // Encrypts nothing while ciphertext waits. Otherwise the buffer would grow while the socket is full.
    while (!at.done() && ciphertext_begin_ == 0 && ciphertext_end_ < kMaxCiphertext) {
      if (at.left_in_block() >= kSmallBlock) {
        const size_t bytes = std::min(at.left_in_block(), kRecord);
        if (!encrypt(at.data(), bytes)) return broken();
        at.skip(bytes);
        continue;
      }
      size_t bytes = 0;
      while (!at.done() && at.left_in_block() < kSmallBlock &&
             at.left_in_block() <= gathered_.size() - bytes) {
        std::memcpy(gathered_.data() + bytes, at.data(), at.left_in_block());
        bytes += at.left_in_block();
        at.skip(at.left_in_block());
      }
      if (!encrypt(gathered_.data(), bytes)) return broken();
    }
    const Flush flushed = flush();
    if (flushed == Flush::kBroken) return reset();
    if (flushed == Flush::kWouldBlock) {
      if (total > 0) return static_cast<ssize_t>(total);
      errno = EAGAIN;
      return -1;
    }
    total += plaintext_bytes_;
    plaintext_bytes_ = 0;
    if (at.done()) return static_cast<ssize_t>(total);
  }
}

bool SluiceTlsStream::send_close_notify() noexcept {
  if (has_failed()) return true;
  if (!self_has_closed() && state_ != State::kHandshake) {
    ERR_clear_error();
    if (SSL_shutdown(ssl_) < 0) static_cast<void>(fail("TLS"));
    ERR_clear_error();
    on(Event::kSelfCloses);
  }
  return flush() != Flush::kWouldBlock;
}

SluiceTlsStream::Flush SluiceTlsStream::flush() noexcept {
  while (ciphertext_begin_ < ciphertext_end_) {
    const ssize_t n = ::send(fd_, ciphertext_ + ciphertext_begin_, ciphertext_end_ - ciphertext_begin_,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      ciphertext_begin_ += static_cast<size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      // A lack of kernel memory for sockets is temporary, like a full socket.
      const bool full =
          n == 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
      return full ? Flush::kWouldBlock : Flush::kBroken;
    }
  }
  ciphertext_begin_ = ciphertext_end_ = 0;
  return Flush::kAll;
}

int SluiceTlsStream::buffer_ciphertext(const char* data, int bytes) noexcept {
  const size_t more = bytes > 0 ? static_cast<size_t>(bytes) : 0;
  if (state_ == State::kFlooded || ciphertext_end_ + more > 2 * kMaxCiphertext) return -1;
  if (ciphertext_capacity_ - ciphertext_end_ < more) {
    // Grows with use, so that the buffer of a control connection stays small.
    const size_t capacity = std::max(2 * ciphertext_capacity_, ciphertext_end_ + more);
    void* const larger = std::realloc(ciphertext_, capacity);
    if (larger == nullptr) return -1;
    ciphertext_ = static_cast<unsigned char*>(larger);
    ciphertext_capacity_ = capacity;
  }
  std::memcpy(ciphertext_ + ciphertext_end_, data, more);
  ciphertext_end_ += more;
  return bytes;
}

int SluiceTlsStream::read_ciphertext(char* to, int bytes, bool& again) noexcept {
  if (state_ == State::kFlooded) return -1;
  if (short_read_) {  // the socket is empty; another call would be wasted
    again = true;
    return -1;
  }
  for (;;) {
    const ssize_t n = ::recv(fd_, to, static_cast<size_t>(bytes), MSG_DONTWAIT);
    if (n > 0) {
      short_read_ = n < bytes;
      return static_cast<int>(n);
    }
    if (n == 0) {
      socket_ended_ = true;
      return 0;
    }
    if (errno == EINTR) continue;
    again = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
    return -1;
  }
}
