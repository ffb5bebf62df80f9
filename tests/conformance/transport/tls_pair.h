#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/tcp/socket.h"

namespace sluice::transport::test {

// Sets SLUICE_TLS_LIBRARY to the library of this build. False if it was not built.
[[nodiscard]] bool use_built_tls_library();

struct TlsTestConfig {
  std::shared_ptr<const tcp::TlsContext> client, server;
  tcp::TlsPeer client_peer, server_peer;  // the peer that the client, or the server, expects
};

// A configuration in which both sides have the same pre-shared key. Throws when TLS is not available.
[[nodiscard]] TlsTestConfig shared_key_config(uint64_t rekey_after = 0);

// A connected pair of TCP sockets with TLS. The sockets are invalid when the host lacks the address or the
// handshake failed; each side then has its error text.
struct TlsPair {
  tcp::Socket client, server;
  std::string client_error, server_error;
};
[[nodiscard]] TlsPair tls_pair(const std::string& host, const TlsTestConfig& config);

}  // namespace sluice::transport::test
