#include "tests/conformance/transport/tls_pair.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <tuple>

#include "core/clock.h"
#include "tests/conformance/transport/transport_test_bed.h"

namespace sluice::transport::test {

bool use_built_tls_library() {
  if (::access(SLUICE_TLS_BUILT, R_OK) != 0) return false;
  ::setenv("SLUICE_TLS_LIBRARY", SLUICE_TLS_BUILT, 1);
  return true;
}

TlsTestConfig shared_key_config(uint64_t rekey_after) {
  if (!use_built_tls_library()) throw std::runtime_error("libsluice_tls.so was not built");
  const auto make = [&](bool server) {
    auto context = tcp::TlsContext::make(server, {}, rekey_after);
    if (!context) throw std::runtime_error(context.error().text);
    return *context;
  };
  TlsTestConfig config{.client = make(false), .server = make(true), .client_peer = {}, .server_peer = {}};
  tcp::TlsPeer peer;
  peer.identity = "job";
  peer.psk.emplace();
  peer.psk->fill(std::byte{7});
  config.client_peer = config.server_peer = peer;
  return config;
}

TlsPair tls_pair(const std::string& host, const TlsTestConfig& config) {
  TlsPair pair;
  std::tie(pair.client, pair.server) = tcp_pair(host);
  if (!pair.client.valid()) return pair;
  auto c = config.client->open(pair.client.fd(), config.client_peer);
  auto s = config.server->open(pair.server.fd(), config.server_peer);
  if (!c || !s) {
    pair.client_error = c ? "" : c.error().text;
    pair.server_error = s ? "" : s.error().text;
    return pair;
  }
  using Step = tcp::SecureStream::Step;
  Step at_client = Step::kWantsRead, at_server = Step::kWantsRead;
  const auto has_failed = [](Step step) { return step == Step::kFailed || step == Step::kPeerEnded; };
  const auto is_finished = [has_failed](Step step) { return step == Step::kDone || has_failed(step); };
  const Nanos deadline = monotonic_now() + 20 * kSecond;
  // One side may finish before the other fails. A failure of either side ends the loop.
  while (monotonic_now() < deadline) {
    if (!is_finished(at_client)) at_client = (*c)->handshake();
    if (!is_finished(at_server)) at_server = (*s)->handshake();
    if (has_failed(at_client) || has_failed(at_server)) break;
    if (is_finished(at_client) && is_finished(at_server)) {
      pair.client.attach_tls(std::move(*c));
      pair.server.attach_tls(std::move(*s));
      return pair;
    }
  }
  pair.client_error = (*c)->error();
  pair.server_error = (*s)->error();
  pair.client = tcp::Socket();
  pair.server = tcp::Socket();
  return pair;
}

}  // namespace sluice::transport::test
