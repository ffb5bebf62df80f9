#include "tests/conformance/transport/tls_pair.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "core/clock.h"
#include "tests/conformance/transport/bed.h"

namespace sluice::transport::test {

bool find_tls_library() {
  if (::access(SLUICE_TLS_BUILT, R_OK) != 0) return false;
  ::setenv("SLUICE_TLS_LIBRARY", SLUICE_TLS_BUILT, 1);
  return true;
}

TlsTerms same_key(uint64_t rekey_after) {
  if (!find_tls_library()) throw std::runtime_error("libsluice_tls.so was not built");
  const auto make = [&](bool server) {
    auto context = tcp::TlsContext::make(server, {}, rekey_after);
    if (!context) throw std::runtime_error(context.error().text);
    return *context;
  };
  TlsTerms terms{.client = make(false), .server = make(true), .of_client = {}, .of_server = {}};
  tcp::TlsPeer peer;
  peer.identity = "job";
  peer.psk.emplace();
  peer.psk->fill(std::byte{7});
  terms.of_client = terms.of_server = peer;
  return terms;
}

TlsPair tls_pair(const std::string& host, const TlsTerms& terms) {
  const auto [client, server] = tcp_pair(host);
  TlsPair pair;
  if (client < 0) return pair;
  pair.client = tcp::Socket(client);
  pair.server = tcp::Socket(server);
  auto c = terms.client->open(client, terms.of_client);
  auto s = terms.server->open(server, terms.of_server);
  if (!c || !s) {
    pair.client_why = c ? "" : c.error().text;
    pair.server_why = s ? "" : s.error().text;
    return pair;
  }
  using Step = tcp::SecureStream::Step;
  Step at_client = Step::kWantsRead, at_server = Step::kWantsRead;
  const auto over = [](Step step) { return step == Step::kDone || step == Step::kFailed; };
  const Nanos deadline = monotonic_now() + 20 * kSecond;
  // One side may be done before the other finds fault with it: a failure ends it too.
  while (monotonic_now() < deadline) {
    if (!over(at_client)) at_client = (*c)->handshake();
    if (!over(at_server)) at_server = (*s)->handshake();
    if (at_client == Step::kFailed || at_server == Step::kFailed) break;
    if (over(at_client) && over(at_server)) {
      pair.client.secure(std::move(*c));
      pair.server.secure(std::move(*s));
      return pair;
    }
  }
  pair.client_why = (*c)->why();
  pair.server_why = (*s)->why();
  pair.client = tcp::Socket();
  pair.server = tcp::Socket();
  return pair;
}

}  // namespace sluice::transport::test
