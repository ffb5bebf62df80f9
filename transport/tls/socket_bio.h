// OpenSSL's view of a stream's socket: reads go to it, writes to the stream's buffer.
#pragma once

#include <openssl/bio.h>

struct SluiceTlsStream;

namespace sluice::tls {

// Null: out of memory. Belongs to the SSL that it is given to.
[[nodiscard]] BIO* make_bio(SluiceTlsStream& stream) noexcept;

}  // namespace sluice::tls
