#pragma once

#include <openssl/ssl.h>

#include <cstddef>

#include "transport/tls/abi.h"

// The configuration that all streams of one side share: TLS 1.3 only, ciphers, certificates.
struct SluiceTlsContext {
  SSL_CTX* ssl;
  bool server;
  bool has_ca;
  uint64_t rekey_after;
};

namespace sluice::tls {

[[nodiscard]] SluiceTlsContext* make_context(const SluiceTlsFiles& files, char* error,
                                             size_t error_bytes) noexcept;
void free_context(SluiceTlsContext* context) noexcept;

}  // namespace sluice::tls
