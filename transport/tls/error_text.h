// Error texts for failures of OpenSSL.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>

namespace sluice::tls {

// Whether this thread's OpenSSL error queue says that the connection ended, rather than that the peer refused
// or broke the protocol.
[[nodiscard]] bool connection_ended() noexcept;
// Writes "<what>: <reason>" and clears this thread's OpenSSL error queue.
void format_error(const char* what, char* error, size_t error_bytes) noexcept;
// The same for a handshake or a record. A rejected certificate of the peer is reported first.
void format_error(const SSL* ssl, const char* what, char* error, size_t error_bytes) noexcept;

}  // namespace sluice::tls
