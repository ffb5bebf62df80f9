// TLS on one connection, where both sides have agreed on it: what stands between a socket and its bytes. The
// work is done by libsluice_tls.so (transport/tls), which is loaded when the first TlsContext is made;
// nothing here or behind it is reached by connections that have none.
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

// One thread at a time. Neither owns nor closes the socket, which must outlive it.
class SecureStream {
 public:
  enum class Step : uint8_t { kDone, kWantsRead, kWantsWrite, kFailed };

  SecureStream(const SluiceTlsApi& api, SluiceTlsStream& stream) noexcept : api_(api), stream_(stream) {}
  SecureStream(const SecureStream&) = delete;
  SecureStream& operator=(const SecureStream&) = delete;
  ~SecureStream() { api_.free_stream(&stream_); }

  // Until kDone nothing else is of use.
  [[nodiscard]] Step handshake() noexcept { return static_cast<Step>(api_.handshake(&stream_)); }
  // As recvmsg and sendmsg: transport/tls/abi.h.
  [[nodiscard]] ssize_t receive(std::span<const iovec> blocks) noexcept {
    return api_.receive(&stream_, blocks.data(), blocks.size());
  }
  [[nodiscard]] ssize_t send(std::span<const iovec> blocks) noexcept {
    return api_.send(&stream_, blocks.data(), blocks.size());
  }
  [[nodiscard]] bool end() noexcept { return api_.end(&stream_) != 0; }
  [[nodiscard]] bool over() const noexcept { return api_.over(&stream_) != 0; }
  [[nodiscard]] bool pending() const noexcept { return api_.pending(&stream_) != 0; }
  [[nodiscard]] std::string why() const { return api_.why(&stream_); }

 private:
  const SluiceTlsApi& api_;
  SluiceTlsStream& stream_;
};

struct TlsFiles {
  std::string certificate;  // PEM, with its chain; empty: none
  std::string key;          // of the certificate; empty: in the same file
  std::string ca;           // PEM: whose certificates the peer may show; empty: none is taken
};

// Who the other side must be.
struct TlsPeer {
  std::string identity;                          // of the pre-shared key
  std::optional<std::array<std::byte, 32>> psk;  // none: certificates
  std::string host;                              // client without psk: what the certificate must name
  std::span<const std::byte> bound;              // digest of what was said before: the same at both sides
};

// What the connections of one side share. Any thread.
class TlsContext {
 public:
  // kUnsupported: the library is not there; kInvalidArgument: a file of `files` is of no use. `rekey_after`:
  // records sent with one key; 0: as many as are safe.
  [[nodiscard]] static Result<std::shared_ptr<const TlsContext>> make(bool server, const TlsFiles& files,
                                                                      uint64_t rekey_after = 0);
  TlsContext(const SluiceTlsApi& api, SluiceTlsContext& context, bool has_ca) noexcept
      : api_(api), context_(context), has_ca_(has_ca) {}
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext() { api_.free_context(&context_); }

  [[nodiscard]] bool has_ca() const noexcept { return has_ca_; }
  // On a connected, non-blocking socket of which nothing has been read ahead. The handshake is the caller's.
  [[nodiscard]] Result<std::unique_ptr<SecureStream>> open(int fd, const TlsPeer& peer) const;

 private:
  const SluiceTlsApi& api_;
  SluiceTlsContext& context_;
  const bool has_ca_;
};

}  // namespace sluice::transport::tcp
