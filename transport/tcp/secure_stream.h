// TLS for TCP connections. libsluice_tls.so (transport/tls) does the work; the first TlsContext loads it.
// Connections without TLS use no code of this file.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "transport/tls/abi.h"

namespace sluice::transport::tcp {

// SecureStream is the TLS state of one connection. One thread at a time. The socket must outlive it.
class SecureStream {
 public:
  enum class Step : uint8_t { kDone, kWantsRead, kWantsWrite, kFailed, kPeerEnded };

  SecureStream(const SluiceTlsApi& api, SluiceTlsStream& stream) noexcept : api_(api), stream_(stream) {}
  SecureStream(const SecureStream&) = delete;
  SecureStream& operator=(const SecureStream&) = delete;
  ~SecureStream() { api_.free_stream(&stream_); }

  // Call until kDone, before any other call.
  [[nodiscard]] Step handshake() noexcept { return static_cast<Step>(api_.handshake(&stream_)); }
  // Like recvmsg and sendmsg: transport/tls/abi.h.
  [[nodiscard]] ssize_t receive(std::span<const iovec> blocks) noexcept {
    return api_.receive(&stream_, blocks.data(), blocks.size());
  }
  [[nodiscard]] ssize_t send(std::span<const iovec> blocks) noexcept {
    return api_.send(&stream_, blocks.data(), blocks.size());
  }
  // False: the socket is full; call again when it is writable.
  [[nodiscard]] bool send_close_notify() noexcept { return api_.send_close_notify(&stream_) != 0; }
  [[nodiscard]] bool has_ended() const noexcept { return api_.has_ended(&stream_) != 0; }
  [[nodiscard]] bool has_pending_bytes() const noexcept { return api_.has_pending_bytes(&stream_) != 0; }
  [[nodiscard]] std::string error() const { return api_.error(&stream_); }

 private:
  const SluiceTlsApi& api_;
  SluiceTlsStream& stream_;
};

struct TlsFiles {
  std::string certificate;  // PEM, with its chain; empty: none
  std::string key;          // of the certificate; empty: in the same file
  std::string ca;           // PEM; authorities that may sign the peer's certificate; empty: none
};

// The required identity of the peer.
struct TlsPeer {
  std::string identity;                          // of the pre-shared key
  std::optional<std::array<std::byte, 32>> psk;  // none: the peers use certificates
  std::string host;                              // client without psk: name in the server's certificate
  std::span<const std::byte> binding;            // digest of the plaintext handshake; equal on both sides
};

// TlsContext holds what all connections of one side share. Any thread.
class TlsContext {
 public:
  // kUnsupported: the library cannot be loaded. kInvalidArgument: a file of `files` is unusable.
  // `rekey_after` is the number of records sent with one key; 0 means as many as are safe.
  [[nodiscard]] static Result<std::shared_ptr<const TlsContext>> make(bool server, const TlsFiles& files,
                                                                      uint64_t rekey_after = 0);
  TlsContext(const SluiceTlsApi& api, SluiceTlsContext& context, bool has_ca) noexcept
      : api_(api), context_(context), has_ca_(has_ca) {}
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext() { api_.free_context(&context_); }

  [[nodiscard]] bool has_ca() const noexcept { return has_ca_; }
  // `fd` is a connected, non-blocking socket without bytes read ahead. The caller runs the handshake.
  [[nodiscard]] Result<std::unique_ptr<SecureStream>> open(int fd, const TlsPeer& peer) const;

 private:
  const SluiceTlsApi& api_;
  SluiceTlsContext& context_;
  const bool has_ca_;
};

}  // namespace sluice::transport::tcp
