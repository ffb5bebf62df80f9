#include "transport/tls/error_text.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>

#include <cstdio>

namespace sluice::tls {

bool connection_ended() noexcept {
  const unsigned long first = ERR_peek_error();
  return first == 0 || ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

namespace {

// What an alert of the peer says about this side's settings. Empty if nothing.
const char* advice_for(int reason) noexcept {
  switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return "; set SLUICE_TLS_CERT to a certificate that the reducers trust";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return "; the peer does not trust the authority of this side's certificate (SLUICE_TLS_CERT, "
             "--tls-cert)";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return "; the peer may have no certificate: then set no SLUICE_TLS_CA, and the pool key authenticates "
             "it";
    default: return "";
  }
}

}  // namespace

void format_error(const char* what, char* error, size_t error_bytes) noexcept {
  // The first error is the cause; later errors are its consequences.
  const unsigned long first = ERR_peek_error();
  const char* reason = first == 0 ? nullptr : ERR_reason_error_string(first);
  if (ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING) reason = "connection closed";
  std::snprintf(error, error_bytes, "%s: %s%s", what, reason != nullptr ? reason : "connection reset",
                advice_for(ERR_GET_REASON(first)));
  ERR_clear_error();
}

void format_error(const SSL* ssl, const char* what, char* error, size_t error_bytes) noexcept {
  // Without this reason the verify result is meaningless: not X509_V_OK at a server with a pre-shared key.
  if (ERR_GET_REASON(ERR_peek_error()) != SSL_R_CERTIFICATE_VERIFY_FAILED)
    return format_error(what, error, error_bytes);
  const long result = SSL_get_verify_result(ssl);
  std::snprintf(error, error_bytes, "%s: certificate of the peer rejected: %s", what,
                X509_verify_cert_error_string(result));
  ERR_clear_error();
}

}  // namespace sluice::tls
