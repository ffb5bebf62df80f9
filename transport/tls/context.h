// What the streams of one side have in common: TLS 1.3 and nothing before it, ciphers, certificates.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>

#include "transport/tls/abi.h"

struct SluiceTlsContext {
  SSL_CTX* ssl;
  bool server;
  bool has_ca;
  uint64_t rekey_after;
};

namespace sluice::tls {

[[nodiscard]] SluiceTlsContext* make_context(const SluiceTlsFiles& files, char* why,
                                             size_t why_bytes) noexcept;
void free_context(SluiceTlsContext* context) noexcept;

}  // namespace sluice::tls
