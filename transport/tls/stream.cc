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

#include "transport/tls/socket_bio.h"
#include "transport/tls/words.h"

namespace {

constexpr char kProtocol[] = "sluice/1 ";
constexpr size_t kProtocolBytes = sizeof kProtocol - 1;
// Blocks of less than this are put together into one record: a frame's header, small payloads.
constexpr size_t kSmallBlock = 2048;

// Walks over blocks without changing them.
class Cursor {
 public:
  explicit Cursor(std::span<const iovec> blocks) noexcept : blocks_(blocks) { settle(); }
  [[nodiscard]] bool done() const noexcept { return blocks_.empty(); }
  [[nodiscard]] const unsigned char* data() const noexcept {
    return static_cast<const unsigned char*>(blocks_.front().iov_base) + offset_;
  }
  [[nodiscard]] size_t rest() const noexcept { return blocks_.front().iov_len - offset_; }
  void skip(size_t n) noexcept {
    while (n > 0 && !done()) {
      const size_t step = std::min(n, rest());
      offset_ += step;
      n -= step;
      settle();
    }
  }

 private:
  void settle() noexcept {
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
  std::free(sealed_);
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
  const auto unusable = [this](const char* words) {
    std::snprintf(why.data(), why.size(), "%s", words);
    return false;
  };
  if (peer.identity_bytes > identity_.size() || kProtocolBytes + peer.bound_bytes >= bound_.size())
    return unusable("a name is too long for TLS");
  if (!server_ && peer.psk == nullptr && (!context.has_ca || peer.host == nullptr))
    return unusable("nothing to know the peer by: neither a token nor a certificate authority");
  ERR_clear_error();
  ssl_ = SSL_new(context.ssl);
  BIO* const bio = ssl_ == nullptr ? nullptr : sluice::tls::make_bio(*this);
  if (bio == nullptr) return unusable("out of memory");
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  identity_bytes_ = peer.identity_bytes;
  if (identity_bytes_ > 0) std::memcpy(identity_.data(), peer.identity, identity_bytes_);
  bound_[0] = static_cast<unsigned char>(kProtocolBytes + peer.bound_bytes);
  std::memcpy(bound_.data() + 1, kProtocol, kProtocolBytes);
  if (peer.bound_bytes > 0) std::memcpy(bound_.data() + 1 + kProtocolBytes, peer.bound, peer.bound_bytes);
  bound_bytes_ = size_t{1} + bound_[0];
  bool ready = peer.psk == nullptr || prepare_psk(peer.psk);
  if (server_) {
    SSL_set_accept_state(ssl_);
  } else {
    SSL_set_connect_state(ssl_);
    ready = ready && SSL_set_alpn_protos(ssl_, bound_.data(), static_cast<unsigned>(bound_bytes_)) == 0 &&
            (peer.psk != nullptr || expect_host(ssl_, peer.host));
  }
  if (ready) return true;
  sluice::tls::explain("TLS", why.data(), why.size());
  return false;
}

int SluiceTlsStream::fail(const char* doing) noexcept {
  if (!failed_ && flooded_) {
    std::snprintf(why.data(), why.size(), "%s: messages that have no place here, or new keys for nothing",
                  doing);
  } else if (!failed_) {
    sluice::tls::explain(ssl_, doing, why.data(), why.size());
  }
  ERR_clear_error();
  failed_ = true;
  return -1;
}

// OpenSSL has no objection to a client that names no protocol, nor to a server that takes a certificate for a
// proof where a key was to be had.
bool SluiceTlsStream::check_agreed() noexcept {
  const auto differs = [this](const char* words) {
    std::snprintf(why.data(), why.size(), "TLS handshake: %s", words);
    failed_ = true;
    return false;
  };
  const unsigned char* name = nullptr;
  unsigned bytes = 0;
  SSL_get0_alpn_selected(ssl_, &name, &bytes);
  if (!std::equal(bound_.begin() + 1, bound_.begin() + static_cast<ptrdiff_t>(bound_bytes_), name,
                  name + bytes))
    return differs("the peer has heard another HELLO or WELCOME than was said");
  if (!server_ && psk_ != nullptr && SSL_session_reused(ssl_) != 1)
    return differs("the peer does not have the job's key");
  return true;
}

// OpenSSL reads over messages within one call for as long as they come, and answers each request for a new
// key at once: a peer that sends nothing else would keep this thread, and its memory. Ours change a key
// before data and ask for nothing.
void SluiceTlsStream::record_came(bool of_data) noexcept {
  if (of_data) new_key_ = false;
}

void SluiceTlsStream::handshake_message_came(std::span<const unsigned char> message) noexcept {
  if (!shaken_) return;
  const bool quiet_update =
      message.size() == 5 && message[0] == SSL3_MT_KEY_UPDATE && message[4] == SSL_KEY_UPDATE_NOT_REQUESTED;
  flooded_ |= !quiet_update || std::exchange(new_key_, true);
}

SluiceTlsStep SluiceTlsStream::handshake() noexcept {
  if (failed_) return kSluiceTlsFailed;
  short_read_ = false;
  ERR_clear_error();
  const int done = shaken_ ? 1 : SSL_do_handshake(ssl_);
  const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_, done);
  if (done == 1 && !shaken_) {
    shaken_ = true;
    if (!check_agreed()) return kSluiceTlsFailed;
  }
  if (done != 1 && error != SSL_ERROR_WANT_READ) static_cast<void>(fail("TLS handshake"));
  const Flush flushed = flush();  // an alert too
  if (failed_ || flushed == Flush::kBroken) {
    static_cast<void>(fail("TLS handshake"));
    return kSluiceTlsFailed;
  }
  if (flushed == Flush::kWouldBlock) return kSluiceTlsWantsWrite;
  return done == 1 ? kSluiceTlsDone : kSluiceTlsWantsRead;
}

ssize_t SluiceTlsStream::receive(std::span<const iovec> blocks) noexcept {
  ERR_clear_error();  // what others have left in this thread's queue would be taken for ours
  short_read_ = false;
  size_t total = 0;
  for (const iovec& block : blocks) {
    auto* const to = static_cast<unsigned char*>(block.iov_base);
    for (size_t have = 0; have < block.iov_len;) {
      size_t got = 0;
      if (!failed_ && !peer_ended_) {
        if (SSL_read_ex(ssl_, to + have, block.iov_len - have, &got) == 1 && !flooded_) {
          have += got;
          total += got;
          continue;
        }
        const int error = flooded_ ? SSL_ERROR_SSL : SSL_get_error(ssl_, 0);
        if (error == SSL_ERROR_ZERO_RETURN) {
          peer_ended_ = true;
        } else if (error != SSL_ERROR_WANT_READ) {
          static_cast<void>(fail("TLS"));
          if (sealed_begin_ != sealed_end_ && encrypted_ == 0) static_cast<void>(flush());  // the alert
        }
      }
      if (total > 0) return static_cast<ssize_t>(total);
      if (peer_ended_) return 0;
      errno = failed_ ? ECONNRESET : EAGAIN;
      return -1;
    }
  }
  return static_cast<ssize_t>(total);
}

bool SluiceTlsStream::seal(const void* data, size_t bytes) noexcept {
  if (records_ >= rekey_after_) {
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
    records_ = 0;
  }
  ++records_;
  size_t written = 0;
  // The buffer takes whatever comes, so a record is never left half done.
  if (SSL_write_ex(ssl_, data, bytes, &written) != 1 || written != bytes) return false;
  encrypted_ += bytes;
  return true;
}

ssize_t SluiceTlsStream::send(std::span<const iovec> blocks) noexcept {
  const auto broken = [this] {
    static_cast<void>(fail("TLS"));
    errno = ECONNRESET;
    return ssize_t{-1};
  };
  // What the peer has said before the connection broke can still be received: not a failure of TLS.
  const auto reset = [] {
    errno = ECONNRESET;
    return ssize_t{-1};
  };
  if (failed_) return reset();
  if (ended_) return broken();
  ERR_clear_error();
  Cursor at(blocks);
  at.skip(encrypted_);
  size_t total = 0;
  for (;;) {
    // Never behind ciphertext that waits: the buffer would grow as long as the socket is short of room.
    while (!at.done() && sealed_begin_ == 0 && sealed_end_ < kMostSealed) {
      if (at.rest() >= kSmallBlock) {
        const size_t bytes = std::min(at.rest(), kRecord);
        if (!seal(at.data(), bytes)) return broken();
        at.skip(bytes);
        continue;
      }
      size_t bytes = 0;
      while (!at.done() && at.rest() < kSmallBlock && at.rest() <= gathered_.size() - bytes) {
        std::memcpy(gathered_.data() + bytes, at.data(), at.rest());
        bytes += at.rest();
        at.skip(at.rest());
      }
      if (!seal(gathered_.data(), bytes)) return broken();
    }
    const Flush flushed = flush();
    if (flushed == Flush::kBroken) return reset();
    if (flushed == Flush::kWouldBlock) {
      if (total > 0) return static_cast<ssize_t>(total);
      errno = EAGAIN;
      return -1;
    }
    total += encrypted_;
    encrypted_ = 0;
    if (at.done()) return static_cast<ssize_t>(total);
  }
}

bool SluiceTlsStream::end() noexcept {
  if (failed_) return true;
  if (!ended_ && shaken_) {
    ERR_clear_error();
    if (SSL_shutdown(ssl_) < 0) static_cast<void>(fail("TLS"));
    ERR_clear_error();
  }
  ended_ = true;
  return flush() != Flush::kWouldBlock;
}

SluiceTlsStream::Flush SluiceTlsStream::flush() noexcept {
  while (sealed_begin_ < sealed_end_) {
    const ssize_t n =
        ::send(fd_, sealed_ + sealed_begin_, sealed_end_ - sealed_begin_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      sealed_begin_ += static_cast<size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      // The kernel being short of memory for sockets passes like a full socket does.
      const bool full =
          n == 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
      return full ? Flush::kWouldBlock : Flush::kBroken;
    }
  }
  sealed_begin_ = sealed_end_ = 0;
  return Flush::kAll;
}

int SluiceTlsStream::take_ciphertext(const char* data, int bytes) noexcept {
  const size_t more = bytes > 0 ? static_cast<size_t>(bytes) : 0;
  if (flooded_ || sealed_end_ + more > 2 * kMostSealed) return -1;
  if (sealed_capacity_ - sealed_end_ < more) {
    // Grown by use: a control connection's stays small.
    const size_t capacity = std::max(2 * sealed_capacity_, sealed_end_ + more);
    void* const larger = std::realloc(sealed_, capacity);
    if (larger == nullptr) return -1;
    sealed_ = static_cast<unsigned char*>(larger);
    sealed_capacity_ = capacity;
  }
  std::memcpy(sealed_ + sealed_end_, data, more);
  sealed_end_ += more;
  return bytes;
}

int SluiceTlsStream::give_ciphertext(char* to, int bytes, bool& again) noexcept {
  if (flooded_) return -1;
  if (short_read_) {  // asking again is a wasted call: the socket says when there is more
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
