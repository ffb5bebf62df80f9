// Why OpenSSL failed, in words for the one who has to mend it.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>

namespace sluice::tls {

// Empties this thread's queue of errors. `doing` begins the text.
void explain(const char* doing, char* why, size_t why_bytes) noexcept;
// Of a handshake or a record: what was wrong with the peer's certificate comes first.
void explain(const SSL* ssl, const char* doing, char* why, size_t why_bytes) noexcept;

}  // namespace sluice::tls
