#include "transport/tls/context.h"

#include <openssl/err.h>

#include <cstdio>
#include <memory>
#include <new>

#include "transport/tls/error_text.h"
#include "transport/tls/stream.h"

namespace sluice::tls {
namespace {

// Maximum bytes of one read from the socket: four full records.
constexpr size_t kReadBuffer = 64 * 1024;
// AES-GCM is safe for 2^24.5 full records with one key (RFC 8446, section 5.5).
constexpr uint64_t kRekeyAfter = uint64_t{1} << 23;

const char* ciphers() noexcept {
  // A pre-shared key requires SHA-256, which both ciphers use. Without AES instructions ChaCha20 comes first.
#if defined(__x86_64__)
  if (__builtin_cpu_supports("aes") == 0) return "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
#endif
  return "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
}

struct FreeSsl {
  void operator()(SSL_CTX* c) const noexcept { SSL_CTX_free(c); }
};

bool configure(SSL_CTX* c, const SluiceTlsFiles& files, char* error, size_t error_bytes) noexcept {
  const auto failed = [&](const char* what, const char* file) {
    char text[300];
    std::snprintf(text, sizeof text, "%s%s%s", what, file == nullptr ? "" : " ", file == nullptr ? "" : file);
    format_error(text, error, error_bytes);
    return false;
  };
  if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1 || SSL_CTX_set_ciphersuites(c, ciphers()) != 1)
    return failed("OpenSSL on this host does not support TLS 1.3", nullptr);
  SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE);
  // No session resumption: each connection authenticates itself.
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_read_ahead(c, 1);
  SSL_CTX_set_default_read_buffer_len(c, kReadBuffer);
  // Refuses keys with a password. Otherwise OpenSSL would ask for it on the terminal and block.
  SSL_CTX_set_default_passwd_cb(c, [](char*, int, int, void*) { return -1; });
  if (files.certificate != nullptr) {
    if (SSL_CTX_use_certificate_chain_file(c, files.certificate) != 1)
      return failed("cannot load certificate", files.certificate);
    const char* const key = files.key != nullptr ? files.key : files.certificate;
    if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1)
      return failed("cannot load private key", key);
    if (SSL_CTX_check_private_key(c) != 1)
      return failed("private key does not match the certificate", nullptr);
  }
  if (files.ca != nullptr && SSL_CTX_load_verify_locations(c, files.ca, nullptr) != 1)
    return failed("cannot load certificate authority", files.ca);
  // A client always verifies the server; without a CA it accepts no certificate.
  const int on_both = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  SSL_CTX_set_verify(c, files.server == 0 || files.ca != nullptr ? on_both : SSL_VERIFY_NONE, nullptr);
  set_callbacks(c, files.server != 0);
  return true;
}

}  // namespace

SluiceTlsContext* make_context(const SluiceTlsFiles& files, char* error, size_t error_bytes) noexcept {
  // No cleanup at exit: helper threads of the NCCL plugin may still run while static objects are destroyed.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  ERR_clear_error();
  std::unique_ptr<SSL_CTX, FreeSsl> ssl(
      SSL_CTX_new(files.server != 0 ? TLS_server_method() : TLS_client_method()));
  if (!ssl) {
    format_error("cannot create a TLS context", error, error_bytes);
    return nullptr;
  }
  if (!configure(ssl.get(), files, error, error_bytes)) return nullptr;
  auto* const context = new (std::nothrow)
      SluiceTlsContext{.ssl = ssl.get(),
                       .server = files.server != 0,
                       .has_ca = files.ca != nullptr,
                       .rekey_after = files.rekey_after != 0 ? files.rekey_after : kRekeyAfter};
  if (context == nullptr) {
    std::snprintf(error, error_bytes, "out of memory");
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
