// One connection's TLS over a non-blocking socket. Ciphertext goes through a buffer of our own, so that
// several records leave by one system call and OpenSSL never has to be asked twice for the same record.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/tls/abi.h"
#include "transport/tls/context.h"

// What the callbacks of OpenSSL and the functions of the table work on.
struct SluiceTlsStream {
  static constexpr size_t kRecord = 16 * 1024;        // the most that one record carries
  static constexpr size_t kMostSealed = 8 * kRecord;  // encrypted before the socket is asked to take it

  SluiceTlsStream() = default;
  SluiceTlsStream(const SluiceTlsStream&) = delete;
  SluiceTlsStream& operator=(const SluiceTlsStream&) = delete;
  ~SluiceTlsStream();

  // False with words in `why`.
  [[nodiscard]] bool open(const SluiceTlsContext& context, int fd, const SluiceTlsPeer& peer) noexcept;
  [[nodiscard]] SluiceTlsStep handshake() noexcept;
  [[nodiscard]] ssize_t receive(std::span<const iovec> blocks) noexcept;
  [[nodiscard]] ssize_t send(std::span<const iovec> blocks) noexcept;
  [[nodiscard]] bool end() noexcept;
  [[nodiscard]] bool over() const noexcept { return failed_ || peer_ended_; }
  [[nodiscard]] bool pending() const noexcept { return over() || SSL_has_pending(ssl_) == 1; }

  // Of the BIO.
  [[nodiscard]] int take_ciphertext(const char* data, int bytes) noexcept;
  [[nodiscard]] int give_ciphertext(char* to, int bytes, bool& again) noexcept;
  [[nodiscard]] bool socket_ended() const noexcept { return socket_ended_; }

  // Of the callbacks.
  [[nodiscard]] std::span<const unsigned char> identity() const noexcept {
    return {identity_.data(), identity_bytes_};
  }
  [[nodiscard]] std::span<const unsigned char> bound() const noexcept {
    return {bound_.data(), bound_bytes_};
  }
  [[nodiscard]] SSL_SESSION* psk() const noexcept { return psk_; }
  void record_came(bool of_data) noexcept;
  void handshake_message_came(std::span<const unsigned char> message) noexcept;

  std::array<char, 256> why{};

 private:
  enum class Flush : uint8_t { kAll, kWouldBlock, kBroken };

  [[nodiscard]] bool prepare_psk(const unsigned char* psk) noexcept;
  [[nodiscard]] bool check_agreed() noexcept;
  [[nodiscard]] Flush flush() noexcept;
  [[nodiscard]] bool seal(const void* data, size_t bytes) noexcept;
  [[nodiscard]] int fail(const char* doing) noexcept;

  SSL* ssl_ = nullptr;
  SSL_SESSION* psk_ = nullptr;
  int fd_ = -1;
  bool server_ = false;
  bool shaken_ = false;
  bool failed_ = false;
  bool socket_ended_ = false;
  bool peer_ended_ = false;  // and said so
  bool ended_ = false;       // we have said so
  bool flooded_ = false;     // by messages that no peer of ours sends
  bool new_key_ = false;     // the peer has changed its key and has used it for nothing yet
  bool short_read_ = false;  // the socket was empty when it was asked last
  uint64_t rekey_after_ = 0;
  uint64_t records_ = 0;  // with this key

  unsigned char* sealed_ = nullptr;  // ciphertext that the socket has not taken: [begin, end) of capacity
  size_t sealed_begin_ = 0;
  size_t sealed_end_ = 0;
  size_t sealed_capacity_ = 0;
  size_t encrypted_ = 0;  // plaintext in it, not yet counted as sent

  size_t identity_bytes_ = 0;
  size_t bound_bytes_ = 0;
  std::array<unsigned char, 256> identity_{};
  std::array<unsigned char, 256> bound_{};  // a name of application protocols, its length first
  std::array<unsigned char, kRecord> gathered_;
};

namespace sluice::tls {

// Of all streams of a context.
void set_callbacks(SSL_CTX* context, bool server) noexcept;

}  // namespace sluice::tls
