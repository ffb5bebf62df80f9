// The BIO of a stream: OpenSSL reads from the socket and writes to the stream's ciphertext buffer.
#pragma once

#include <openssl/bio.h>

struct SluiceTlsStream;

namespace sluice::tls {

// Null when out of memory. The SSL object that receives the BIO owns it.
[[nodiscard]] BIO* make_bio(SluiceTlsStream& stream) noexcept;

}  // namespace sluice::tls
