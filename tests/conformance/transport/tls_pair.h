// A connected pair of TCP sockets with TLS between them, keyed alike.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/tcp/socket.h"

namespace sluice::transport::test {

// The library of this build, whatever the environment says. False: it was not built.
[[nodiscard]] bool find_tls_library();

struct TlsTerms {
  std::shared_ptr<const tcp::TlsContext> client, server;
  tcp::TlsPeer of_client, of_server;  // what each expects of the other
};

// Both sides with the same pre-shared key. Throws when TLS is not to be had.
[[nodiscard]] TlsTerms same_key(uint64_t rekey_after = 0);

// Client and server; not valid when the host lacks the address, or when the handshake failed: `why` has then
// what each side says.
struct TlsPair {
  tcp::Socket client, server;
  std::string client_why, server_why;
};
[[nodiscard]] TlsPair tls_pair(const std::string& host, const TlsTerms& terms);

}  // namespace sluice::transport::test
