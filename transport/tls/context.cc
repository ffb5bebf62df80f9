#include "transport/tls/context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <initializer_list>
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

// Why OpenSSL refused the file. Nothing else may read it: a pipe is empty then.
const char* refusal_of(const char* file) noexcept {
  const unsigned long first = ERR_peek_error();
  const int reason = ERR_GET_REASON(first);
  if (ERR_SYSTEM_ERROR(first)) return std::strerror(reason);
  struct stat about {};
  if (::stat(file, &about) == 0 && S_ISDIR(about.st_mode)) return std::strerror(EISDIR);
  if (reason == ERR_R_UNSUPPORTED || (ERR_GET_LIB(first) == ERR_LIB_PEM && reason == PEM_R_NO_START_LINE))
    return "the file has no such PEM block";
  if (reason == ERR_R_INTERRUPTED_OR_CANCELLED) return "the key has a password; remove it";
  const char* const text = ERR_reason_error_string(first);
  return text != nullptr ? text : "unknown format";
}

// "expired on 2026-11-28", "is not valid before 2026-11-28"; empty: valid now.
using ValidityText = std::array<char, 64>;
ValidityText invalidity_of(const X509* certificate) noexcept {
  ValidityText out{};
  const ASN1_TIME* const end = X509_get0_notAfter(certificate);
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate);
  const bool has_expired = X509_cmp_current_time(end) < 0;
  if (!has_expired && X509_cmp_current_time(begin) < 0) return out;
  std::tm time{};
  if (ASN1_TIME_to_tm(has_expired ? end : begin, &time) != 1) return out;
  std::strftime(out.data(), out.size(), has_expired ? "expired on %Y-%m-%d" : "is not valid before %Y-%m-%d",
                &time);
  return out;
}

// Of the first authority, if none in the store is valid.
ValidityText invalidity_of(const X509_STORE* store) noexcept {
  ValidityText first{};
  const STACK_OF(X509_OBJECT)* const objects = X509_STORE_get0_objects(store);
  for (int i = 0; i < sk_X509_OBJECT_num(objects); ++i) {
    const X509* const authority = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
    if (authority == nullptr) continue;
    const ValidityText text = invalidity_of(authority);
    if (text[0] == 0) return text;
    if (first[0] == 0) first = text;
  }
  return first;
}

// Class ErrorText writes the error of make_context().
class ErrorText {
 public:
  ErrorText(char* out, size_t bytes) noexcept : out_(out), bytes_(bytes) {}
  // "cannot load private key /k: Permission denied", from OpenSSL.
  bool refuse(const char* what, const char* file) const noexcept {
    return write({"cannot load ", what, " ", file, ": ", refusal_of(file)});
  }
  // The texts without a separator.
  bool write(std::initializer_list<const char*> texts) const noexcept {
    size_t used = 0;
    for (const char* text : texts) {
      if (used < bytes_) used += static_cast<size_t>(std::snprintf(out_ + used, bytes_ - used, "%s", text));
    }
    ERR_clear_error();
    return false;
  }

 private:
  char* const out_;
  const size_t bytes_;
};

bool load_certificate(SSL_CTX* c, const SluiceTlsFiles& files, const ErrorText& error) noexcept {
  const char* const key = files.key != nullptr ? files.key : files.certificate;
  if (SSL_CTX_use_certificate_chain_file(c, files.certificate) != 1)
    return error.refuse("certificate", files.certificate);
  if (const ValidityText text = invalidity_of(SSL_CTX_get0_certificate(c)); text[0] != 0)
    return error.write({"certificate ", files.certificate, " ", text.data()});
  if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1) {
    const unsigned long first = ERR_peek_error();
    if (ERR_GET_LIB(first) == ERR_LIB_X509 && ERR_GET_REASON(first) == X509_R_KEY_VALUES_MISMATCH)
      return error.write({"private key ", key, " is not that of certificate ", files.certificate});
    return error.refuse("private key", key);
  }
  // OpenSSL compares a key only with a certificate of the same type, RSA or elliptic curve.
  if (SSL_CTX_check_private_key(c) != 1)
    return error.write({"private key ", key, " is not that of certificate ", files.certificate});
  return true;
}

bool load_authorities(SSL_CTX* c, const char* file, const ErrorText& error) noexcept {
  if (SSL_CTX_load_verify_locations(c, file, nullptr) != 1)
    return error.refuse("certificate authority", file);
  if (const ValidityText text = invalidity_of(SSL_CTX_get_cert_store(c)); text[0] != 0)
    return error.write({"certificate authority ", file, " ", text.data()});
  return true;
}

bool configure(SSL_CTX* c, const SluiceTlsFiles& files, char* error, size_t error_bytes) noexcept {
  if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1 || SSL_CTX_set_ciphersuites(c, ciphers()) != 1) {
    format_error("OpenSSL on this host does not support TLS 1.3", error, error_bytes);
    return false;
  }
  SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE);
  // No session resumption: each connection authenticates itself.
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_read_ahead(c, 1);
  SSL_CTX_set_default_read_buffer_len(c, kReadBuffer);
  // Refuses keys with a password. Otherwise OpenSSL would ask for it on the terminal and block.
  SSL_CTX_set_default_passwd_cb(c, [](char*, int, int, void*) { return -1; });
  const ErrorText text(error, error_bytes);
  if (files.certificate != nullptr && !load_certificate(c, files, text)) return false;
  if (files.ca != nullptr && !load_authorities(c, files.ca, text)) return false;
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
