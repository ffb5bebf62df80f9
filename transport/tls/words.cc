#include "transport/tls/words.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>

#include <cstdio>

namespace sluice::tls {

void explain(const char* doing, char* why, size_t why_bytes) noexcept {
  // The first error is the cause, those behind it are its consequences.
  const unsigned long first = ERR_peek_error();
  const char* const reason = first == 0 ? nullptr : ERR_reason_error_string(first);
  std::snprintf(why, why_bytes, "%s: %s", doing, reason != nullptr ? reason : "the connection broke");
  ERR_clear_error();
}

void explain(const SSL* ssl, const char* doing, char* why, size_t why_bytes) noexcept {
  // The verdict alone says nothing: with a pre-shared key it is not "ok" at a server.
  if (ERR_GET_REASON(ERR_peek_error()) != SSL_R_CERTIFICATE_VERIFY_FAILED)
    return explain(doing, why, why_bytes);
  const long verdict = SSL_get_verify_result(ssl);
  std::snprintf(why, why_bytes, "%s: the peer's certificate: %s", doing,
                X509_verify_cert_error_string(verdict));
  ERR_clear_error();
}

}  // namespace sluice::tls
