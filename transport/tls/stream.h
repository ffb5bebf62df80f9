#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/tls/abi.h"
#include "transport/tls/context.h"

// SluiceTlsStream runs TLS for one connection over a non-blocking socket. Ciphertext passes through a buffer
// of the stream, so that one system call sends several records and OpenSSL never has to retry a record.
struct SluiceTlsStream {
  static constexpr size_t kRecord = 16 * 1024;           // maximum plaintext of one record
  static constexpr size_t kMaxCiphertext = 8 * kRecord;  // maximum bytes encrypted before a flush

  SluiceTlsStream() = default;
  SluiceTlsStream(const SluiceTlsStream&) = delete;
  SluiceTlsStream& operator=(const SluiceTlsStream&) = delete;
  ~SluiceTlsStream();

  // The functions of SluiceTlsApi.
  [[nodiscard]] bool open(const SluiceTlsContext& context, int fd, const SluiceTlsPeer& peer) noexcept;
  [[nodiscard]] SluiceTlsStep handshake() noexcept;
  [[nodiscard]] ssize_t receive(std::span<const iovec> blocks) noexcept;
  [[nodiscard]] ssize_t send(std::span<const iovec> blocks) noexcept;
  [[nodiscard]] bool send_close_notify() noexcept;
  [[nodiscard]] bool has_ended() const noexcept { return has_failed() || peer_has_closed(); }
  [[nodiscard]] bool has_pending_bytes() const noexcept { return has_ended() || SSL_has_pending(ssl_) == 1; }

  // For the BIO.
  [[nodiscard]] int buffer_ciphertext(const char* data, int bytes) noexcept;
  [[nodiscard]] int read_ciphertext(char* to, int bytes, bool& again) noexcept;
  [[nodiscard]] bool socket_ended() const noexcept { return socket_ended_; }

  // For the callbacks of OpenSSL.
  [[nodiscard]] std::span<const unsigned char> identity() const noexcept {
    return {identity_.data(), identity_bytes_};
  }
  [[nodiscard]] std::span<const unsigned char> alpn() const noexcept { return {alpn_.data(), alpn_bytes_}; }
  [[nodiscard]] SSL_SESSION* psk() const noexcept { return psk_; }
  void on_record(bool is_data) noexcept;
  void on_handshake_message(std::span<const unsigned char> message) noexcept;

  std::array<char, 256> error{};  // text of the last failure

 private:
  enum class Flush : uint8_t { kAll, kWouldBlock, kBroken };
  // Each side closes with a close_notify of its own. kFlooded: the peer sent handshake messages that Sluice
  // never sends; the call in progress fails. kLost: the connection ended without an alert.
  enum class State : uint8_t {
    kHandshake,
    kOpen,
    kPeerClosed,
    kSelfClosed,
    kClosed,
    kFlooded,
    kFailed,
    kLost
  };
  enum class Event : uint8_t { kHandshakeDone, kPeerCloses, kSelfCloses, kFlood, kError, kConnectionEnd };

  void on(Event event) noexcept;
  [[nodiscard]] bool has_failed() const noexcept {
    return state_ == State::kFailed || state_ == State::kLost;
  }
  [[nodiscard]] bool peer_has_closed() const noexcept {
    return state_ == State::kPeerClosed || state_ == State::kClosed;
  }
  [[nodiscard]] bool self_has_closed() const noexcept {
    return state_ == State::kSelfClosed || state_ == State::kClosed;
  }
  [[nodiscard]] bool prepare_psk(const unsigned char* psk) noexcept;
  [[nodiscard]] bool check_negotiation() noexcept;
  [[nodiscard]] Flush flush() noexcept;
  [[nodiscard]] bool encrypt(const void* data, size_t bytes) noexcept;
  [[nodiscard]] int fail(const char* what) noexcept;
  [[nodiscard]] SluiceTlsStep failed_step() const noexcept;

  SSL* ssl_ = nullptr;
  SSL_SESSION* psk_ = nullptr;
  int fd_ = -1;
  State state_ = State::kHandshake;
  bool server_ = false;
  bool socket_ended_ = false;  // for reads
  bool unused_key_ = false;    // the peer changed its key and has sent no data with it yet
  bool short_read_ = false;    // the last read emptied the socket
  uint64_t rekey_after_ = 0;
  uint64_t records_ = 0;  // sent with the current key

  // Ciphertext that the socket has not accepted: [begin, end) of the capacity.
  unsigned char* ciphertext_ = nullptr;
  size_t ciphertext_begin_ = 0;
  size_t ciphertext_end_ = 0;
  size_t ciphertext_capacity_ = 0;
  size_t plaintext_bytes_ = 0;  // plaintext of that ciphertext, not yet counted as sent

  size_t identity_bytes_ = 0;
  size_t alpn_bytes_ = 0;
  std::array<unsigned char, 256> identity_{};
  std::array<unsigned char, 256> alpn_{};  // ALPN list with one entry: its length, then its name
  std::array<unsigned char, kRecord> gathered_;
};

namespace sluice::tls {

// Sets the callbacks for all streams of a context.
void set_callbacks(SSL_CTX* context, bool server) noexcept;
// The BIO of a stream: OpenSSL reads from the socket and writes to the stream's ciphertext buffer. Null when
// out of memory. The SSL object that receives the BIO owns it.
[[nodiscard]] BIO* make_bio(SluiceTlsStream& stream) noexcept;

}  // namespace sluice::tls
