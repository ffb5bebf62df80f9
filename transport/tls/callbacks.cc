// Callbacks of OpenSSL: pre-shared key, application protocol (ALPN), received messages and socket I/O.
#include <algorithm>

#include "transport/tls/stream.h"

namespace sluice::tls {
namespace {

SluiceTlsStream& stream_of(const SSL* ssl) noexcept {
  return *static_cast<SluiceTlsStream*>(SSL_get_app_data(ssl));
}

bool same(std::span<const unsigned char> a, const unsigned char* b, size_t bytes) noexcept {
  return a.size() == bytes && std::equal(a.begin(), a.end(), b);
}

int use_psk(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, size_t* identity_bytes,
            SSL_SESSION** session) {
  const SluiceTlsStream& s = stream_of(ssl);
  *session = nullptr;
  // After a HelloRetryRequest the cipher is fixed. The key works only with SHA-256.
  if (s.psk() == nullptr || (digest != nullptr && EVP_MD_is_a(digest, "SHA256") == 0)) return 1;
  if (SSL_SESSION_up_ref(s.psk()) != 1) return 0;
  *session = s.psk();
  *identity = s.identity().data();
  *identity_bytes = s.identity().size();
  return 1;
}

int find_psk(SSL* ssl, const unsigned char* identity, size_t identity_bytes, SSL_SESSION** session) {
  const SluiceTlsStream& s = stream_of(ssl);
  *session = nullptr;
  if (s.psk() == nullptr || !same(s.identity(), identity, identity_bytes)) return 1;
  if (SSL_SESSION_up_ref(s.psk()) != 1) return 0;
  *session = s.psk();
  return 1;
}

int choose_protocol(SSL* ssl, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                    unsigned in_bytes, void* /*argument*/) {
  const SluiceTlsStream& s = stream_of(ssl);
  if (!same(s.alpn(), in, in_bytes)) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = in + 1;
  *out_bytes = in[0];
  return SSL_TLSEXT_ERR_OK;
}

void observe_message(int sent, int /*version*/, int type, const void* message, size_t bytes, SSL* ssl,
                     void* /*argument*/) {
  const std::span<const unsigned char> bytes_in(static_cast<const unsigned char*>(message), bytes);
  if (sent != 0 || bytes_in.empty()) return;
  if (type == SSL3_RT_INNER_CONTENT_TYPE) stream_of(ssl).on_record(bytes_in[0] == SSL3_RT_APPLICATION_DATA);
  if (type == SSL3_RT_HANDSHAKE) stream_of(ssl).on_handshake_message(bytes_in);
}

SluiceTlsStream& stream_of(BIO* bio) noexcept {
  return *static_cast<SluiceTlsStream*>(BIO_get_data(bio));
}

int write_bio(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  return stream_of(bio).buffer_ciphertext(data, bytes);
}

int read_bio(BIO* bio, char* to, int bytes) {
  BIO_clear_retry_flags(bio);
  bool again = false;
  const int n = stream_of(bio).read_ciphertext(to, bytes, again);
  if (again) BIO_set_retry_read(bio);
  return n;
}

long control_bio(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return stream_of(bio).socket_ended() ? 1 : 0;
  return 0;
}

BIO_METHOD* make_method() noexcept {
  BIO_METHOD* const m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sluice socket");
  if (m == nullptr) return nullptr;
  BIO_meth_set_write(m, write_bio);
  BIO_meth_set_read(m, read_bio);
  BIO_meth_set_ctrl(m, control_bio);
  return m;
}

}  // namespace

BIO* make_bio(SluiceTlsStream& stream) noexcept {
  static BIO_METHOD* const method = make_method();  // never freed: the library is never unloaded
  BIO* const bio = method == nullptr ? nullptr : BIO_new(method);
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, &stream);
  BIO_set_init(bio, 1);
  return bio;
}

void set_callbacks(SSL_CTX* context, bool server) noexcept {
  SSL_CTX_set_msg_callback(context, observe_message);
  if (server) {
    SSL_CTX_set_psk_find_session_callback(context, find_psk);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  } else {
    SSL_CTX_set_psk_use_session_callback(context, use_psk);
  }
}

}  // namespace sluice::tls
