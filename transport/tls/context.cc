#include "transport/tls/context.h"

#include <openssl/err.h>

#include <cstdio>
#include <memory>
#include <new>

#include "transport/tls/stream.h"
#include "transport/tls/words.h"

namespace sluice::tls {
namespace {

// What one receive takes from the socket at most: four full records.
constexpr size_t kReadBuffer = 64 * 1024;
// AES-GCM is good for 2^24.5 full records with one key (RFC 8446, section 5.5).
constexpr uint64_t kRekeyAfter = uint64_t{1} << 23;

const char* ciphers() noexcept {
  // Both have SHA-256, as a pre-shared key must. Without AES in the processor its turn comes last.
#if defined(__x86_64__)
  if (__builtin_cpu_supports("aes") == 0) return "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
#endif
  return "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
}

struct FreeSsl {
  void operator()(SSL_CTX* c) const noexcept { SSL_CTX_free(c); }
};

bool set_up(SSL_CTX* c, const SluiceTlsFiles& files, char* why, size_t why_bytes) noexcept {
  const auto failed = [&](const char* doing, const char* file) {
    char text[300];
    std::snprintf(text, sizeof text, "%s%s%s", doing, file == nullptr ? "" : " ",
                  file == nullptr ? "" : file);
    explain(text, why, why_bytes);
    return false;
  };
  if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1 || SSL_CTX_set_ciphersuites(c, ciphers()) != 1)
    return failed("TLS 1.3 is not to be had", nullptr);
  SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A session is never taken up again: each connection is proved by itself.
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_read_ahead(c, 1);
  SSL_CTX_set_default_read_buffer_len(c, kReadBuffer);
  // A key under a password can't be had: OpenSSL would ask the terminal for it, and wait.
  SSL_CTX_set_default_passwd_cb(c, [](char*, int, int, void*) { return -1; });
  if (files.certificate != nullptr) {
    if (SSL_CTX_use_certificate_chain_file(c, files.certificate) != 1)
      return failed("certificate", files.certificate);
    const char* const key = files.key != nullptr ? files.key : files.certificate;
    if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1) return failed("private key", key);
    if (SSL_CTX_check_private_key(c) != 1) return failed("the key is not of the certificate", nullptr);
  }
  if (files.ca != nullptr && SSL_CTX_load_verify_locations(c, files.ca, nullptr) != 1)
    return failed("certificate authority", files.ca);
  // A client always wants to know who answers; without a CA no certificate will do.
  const int on_both = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  SSL_CTX_set_verify(c, files.server == 0 || files.ca != nullptr ? on_both : SSL_VERIFY_NONE, nullptr);
  set_callbacks(c, files.server != 0);
  return true;
}

}  // namespace

SluiceTlsContext* make_context(const SluiceTlsFiles& files, char* why, size_t why_bytes) noexcept {
  // Not at exit: helper threads of the NCCL plugin may run on while statics end.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  ERR_clear_error();
  std::unique_ptr<SSL_CTX, FreeSsl> ssl(
      SSL_CTX_new(files.server != 0 ? TLS_server_method() : TLS_client_method()));
  if (!ssl) {
    explain("TLS", why, why_bytes);
    return nullptr;
  }
  if (!set_up(ssl.get(), files, why, why_bytes)) return nullptr;
  auto* const context = new (std::nothrow)
      SluiceTlsContext{.ssl = ssl.get(),
                       .server = files.server != 0,
                       .has_ca = files.ca != nullptr,
                       .rekey_after = files.rekey_after != 0 ? files.rekey_after : kRekeyAfter};
  if (context == nullptr) {
    std::snprintf(why, why_bytes, "out of memory");
    return nullptr;
  }
  static_cast<void>(ssl.release());
  return context;
}

void free_context(SluiceTlsContext* context) noexcept {
  if (context == nullptr) return;
  SSL_CTX_free(context->ssl);
  delete context;
}

}  // namespace sluice::tls
