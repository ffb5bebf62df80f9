#include "gpu_client/engine/join/handshake.h"

#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/clock.h"
#include "core/crc32c.h"
#include "gpu_client/engine/base/peer_error.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"
#include "transport/transport.h"

namespace sluice::engine {
namespace {

using transport::tcp::Socket;

constexpr Nanos kFirstRetry = 20 * kMillisecond;
constexpr Nanos kLongestRetry = 500 * kMillisecond;

// A process does not gain descriptors by waiting, and the other ranks should learn why it does not come.
bool is_out_of_descriptors() {
  const Socket probe(::eventfd(0, EFD_CLOEXEC));
  return !probe.valid() && errno == EMFILE;
}

Result<Socket> connect_with_retry(const config::Endpoint& reducer, const Identity& identity,
                                  const Deadline& deadline) {
  for (Nanos pause = kFirstRetry;; pause = std::min(2 * pause, kLongestRetry)) {
    auto socket = connect_once(reducer, identity, deadline);
    if (socket || socket.error().code == Errc::kInvalidArgument || socket.error().code == Errc::kShutdown)
      return socket;
    if (socket.error().code == Errc::kSystem && is_out_of_descriptors()) return socket;
    const Nanos next = monotonic_now() + pause;
    if (next >= deadline.time) {
      // The text of the last attempt, such as "connection refused", says more than "timeout".
      return fail(Errc::kTimeout, socket.error().text);
    }
    if (transport::tcp::sleep_until({next, deadline.interrupt_fd}) == Errc::kShutdown)
      return fail(Errc::kShutdown, "interrupted");
  }
}

struct ReceivedFrame {
  Status status;
  bool malformed = false;  // bytes were received and are invalid
};

// Receives one control frame and checks what does not depend on the sender.
ReceivedFrame receive_frame(const Socket& from, wire::FrameHeader& h, std::vector<std::byte>& body,
                            const Deadline& deadline) {
  std::array<std::byte, wire::kHeaderBytes> raw;
  std::array<std::byte, transport::kMaxExtensionBytes> area;
  if (const Status s = transport::tcp::read_exact(from, raw, deadline); !s.ok()) return {s};
  if (const Status s = wire::decode_header(raw, h); !s.ok()) return {s, true};
  if (wire::is_data(h.type)) return {Errc::kUnexpectedMessage, true};
  if (h.extension_bytes() > area.size()) return {Errc::kBadExtension, true};
  const std::span extensions(area.data(), h.extension_bytes());
  if (const Status s = transport::tcp::read_exact(from, extensions, deadline); !s.ok()) return {s};
  if (const Status s = wire::verify_header(raw, extensions); !s.ok()) return {s, true};
  body.resize(h.length);
  if (const Status s = transport::tcp::read_exact(from, body, deadline); !s.ok()) return {s};
  const bool checked = (h.flags & wire::kFlagPayloadCrc) != 0;
  if (checked && crc32c(body) != h.payload_crc) return {Errc::kBadPayloadCrc, true};
  return {};
}

tl::unexpected<Error> connection_error(const Handshake& g, Status status, const std::string& doing) {
  std::string cause = "connection reset";
  if (status.code() == Errc::kTimeout) cause = "timed out";
  if (status.code() == Errc::kClosed) cause = "connection closed by the reducer";
  if (status.code() == Errc::kShutdown) cause = "interrupted";
  // With TLS 1.3 the reducer's alert arrives after this side has finished the TLS handshake.
  const transport::tcp::SecureStream* const tls = g.socket.tls();
  if (status.code() == Errc::kReset && tls != nullptr && !tls->error().empty()) cause = tls->error();
  const bool is_local = status.code() == Errc::kTimeout || status.code() == Errc::kShutdown;
  const std::string text = g.name + ": " + cause + " while " + doing;
  if (is_local) return fail(status.code(), text);
  if (!g.worker) return fail(Errc::kReducerLost, text);
  const std::string rank = "rank " + std::to_string(*g.worker);
  return fail(Errc::kPeerLost, rank + " lost: it left before all ranks had joined (" + text + ")");
}

template <typename Message>
Error refusal_error(const Handshake& g, const std::vector<std::byte>& body, const char* verb) {
  Message m;
  if (const Status s = wire::decode_body(body, m); !s.ok())
    return {s.code(), g.name + ": malformed " + wire::to_string(Message::kType)};
  return {code_from_peer(m.code), g.name + " " + verb + ": " + replace_control_characters(m.text)};
}

// Sets the token of `g`.
Result<void> check_welcome(Handshake& g, const Identity& identity) {
  const wire::Welcome& w = g.welcome;
  if (w.version < g.hello.min_version || w.version > g.hello.max_version) {
    return fail(Errc::kNoCommonVersion, g.name + ": chose protocol version " + std::to_string(w.version) +
                                            ", but this client supports " +
                                            wire::version_range(g.hello.min_version, g.hello.max_version));
  }
  if (!identity.token) {
    if (w.proof == 0) return {};
    return fail(
        Errc::kUnauthenticated,
        g.name + ": requires the key of the pool; set SLUICE_KEY_FILE, or SLUICE_TOKEN_FILE and SLUICE_JOB");
  }
  if (w.proof == 0) {
    return fail(Errc::kUnauthenticated, g.name +
                                            ": has no key to prove the job token; start the reducer with "
                                            "--key-file, or unset SLUICE_KEY_FILE and SLUICE_TOKEN_FILE");
  }
  for (const auto& token : {identity.token, identity.old_token}) {
    if (token && wire::equal_digests(wire::server_proof(*token, g.hello, w), w.mac)) {
      g.token = token;
      return {};
    }
  }
  return fail(Errc::kUnauthenticated,
              g.name + ": wrong proof of the token of job \"" + identity.job +
                  "\"; the key or the job differs: check SLUICE_KEY_FILE, SLUICE_TOKEN_FILE and SLUICE_JOB");
}

Result<void> start_tls(Handshake& g, const config::Endpoint& reducer, const Identity& identity,
                       const Deadline& deadline) {
  if (!identity.tls) return {};
  if ((g.welcome.features & wire::kFeatureTls) == 0) {
    if (!identity.tls->required) return {};
    return fail(
        Errc::kUnauthenticated,
        g.name + ": does not offer TLS, but SLUICE_TLS is \"require\"; start the reducer with --tls on");
  }
  const wire::Digest binding = wire::tls_binding(g.hello, g.welcome);
  transport::tcp::TlsPeer peer{.identity = identity.job,
                               .psk = std::nullopt,
                               .host = reducer.name.empty() ? reducer.host : reducer.name,
                               .binding = std::as_bytes(std::span(binding))};
  if (!identity.tls->context->has_ca() && g.token) {
    const wire::Digest key = wire::tls_key(*g.token);
    std::ranges::copy(std::as_bytes(std::span(key)), peer.psk.emplace().begin());
  }
  auto secured = transport::tcp::tls_handshake(g.socket, *identity.tls->context, peer, deadline);
  if (secured) return {};
  Error error = secured.error();
  if (error.code == Errc::kReset) error.code = Errc::kReducerLost;  // as connection_error()
  if (identity.tls->ca.empty()) return add_context(g.name, error);
  return add_context(g.name + ": TLS with authority " + identity.tls->ca + ", host name " + peer.host, error);
}

}  // namespace

Result<wire::Nonce> make_nonce() {
  wire::Nonce nonce;
  for (size_t have = 0; have < nonce.size();) {
    const ssize_t n = ::getrandom(nonce.data() + have, nonce.size() - have, 0);
    if (n < 0 && errno != EINTR) return fail(Errc::kSystem, "cannot get random bytes from the system");
    if (n > 0) have += static_cast<size_t>(n);
  }
  return nonce;
}

std::string reducer_name(const config::Endpoint& reducer) {
  config::Endpoint unweighted = reducer;
  unweighted.weight = 1;
  return "reducer " + config::to_string(unweighted);
}

Result<Socket> connect_once(const config::Endpoint& reducer, const Identity& identity,
                            const Deadline& deadline) {
  transport::tcp::SocketOptions options;
  options.local_address = identity.interface_address;
  return transport::tcp::connect_to(reducer.host, reducer.port, options, deadline);
}

Result<Handshake> perform_handshake(Socket socket, const config::Endpoint& reducer, std::string name,
                                    const Identity& identity, wire::Purpose purpose, uint32_t lane,
                                    uint64_t incarnation, const Deadline& deadline) {
  auto nonce = make_nonce();
  if (!nonce) return tl::unexpected(nonce.error());
  Handshake g;
  g.socket = std::move(socket);
  g.name = std::move(name);
  g.hello.purpose = purpose;
  g.hello.rank = identity.rank;
  g.hello.ranks = identity.ranks;
  g.hello.lane = lane;
  g.hello.session = identity.session;
  g.hello.incarnation = incarnation;
  g.hello.features = identity.fault_tolerant ? wire::kFaultToleranceFeatures : 0;
  if (identity.order == wire::SumOrder::kTree) g.hello.features |= wire::kFeatureTreeOrder;
  if (identity.tls) g.hello.features |= wire::kFeatureTls;
  if (purpose == wire::Purpose::kStore) g.hello.features |= wire::kFeatureBodyEnd;
  if (purpose == wire::Purpose::kLane && identity.lanes.rdma && !identity.lanes.same_process)
    g.hello.features |= wire::kFeatureRdma;
  if (purpose == wire::Purpose::kLane && identity.lanes.same_process)
    g.hello.features |= wire::kFeatureMemory;
  g.hello.nonce = *nonce;
  g.hello.job = identity.job;
  g.hello.tenant = identity.tenant;
  // Without an id the reducer proves its first key.
  if (identity.token && !identity.old_token) g.hello.key_id = wire::key_id(*identity.token, *nonce);
  auto welcome = send_request<wire::Welcome>(g, g.hello, deadline);
  if (!welcome) return tl::unexpected(welcome.error());
  g.welcome = std::move(*welcome);
  if (auto checked = check_welcome(g, identity); !checked) return tl::unexpected(checked.error());
  if (auto secured = start_tls(g, reducer, identity, deadline); !secured)
    return tl::unexpected(secured.error());
  return g;
}

Result<Handshake> connect_and_handshake(const config::Endpoint& reducer, const Identity& identity,
                                        wire::Purpose purpose, uint32_t lane, uint64_t incarnation,
                                        const Deadline& deadline) {
  const std::string name = reducer_name(reducer);
  auto socket = connect_with_retry(reducer, identity, deadline);
  if (!socket) return add_context(name, socket.error());
  return perform_handshake(std::move(*socket), reducer, name, identity, purpose, lane, incarnation, deadline);
}

Result<Handshake> connect_and_handshake(const config::Endpoint& reducer, const std::string& name,
                                        const Identity& identity, wire::Purpose purpose, uint32_t lane,
                                        const Deadline& deadline) {
  auto socket = connect_with_retry(reducer, identity, deadline);
  if (!socket) return add_context(name, socket.error());
  return perform_handshake(std::move(*socket), reducer, name, identity, purpose, lane, 0, deadline);
}

wire::Mac client_proof(const Handshake& handshake, uint64_t view_hash) {
  if (!handshake.token) return {};
  return wire::client_proof(*handshake.token, handshake.hello, handshake.welcome, view_hash);
}

Result<void> send_frame(const Handshake& to, const std::vector<std::byte>& frame, const Deadline& deadline) {
  const Status s = transport::tcp::write_all(to.socket, frame, deadline);
  // After a reset the reducer's reason may still be received, so receive_body() reports the error.
  if (s.ok() || s.code() == Errc::kReset) return {};
  return connection_error(to, s, "sending the handshake");
}

Result<std::vector<std::byte>> receive_body(const Handshake& from, wire::FrameType expected,
                                            const Deadline& deadline) {
  const std::string doing = std::string("waiting for ") + wire::to_string(expected);
  const auto malformed = [&](Status s) {
    return fail(s.code(), from.name + ": does not speak the Sluice protocol: " +
                              std::string(to_string(s.code())) + " while " + doing);
  };
  for (;;) {
    wire::FrameHeader h;
    std::vector<std::byte> body;
    if (const ReceivedFrame r = receive_frame(from.socket, h, body, deadline); !r.status.ok()) {
      if (r.malformed) return malformed(r.status);
      return connection_error(from, r.status, doing);
    }
    if (h.type == wire::FrameType::kRefused)
      return tl::unexpected(refusal_error<wire::Refused>(from, body, "refused"));
    if (h.type == wire::FrameType::kAbort)
      return tl::unexpected(refusal_error<wire::Abort>(from, body, "ended the session"));
    if (h.type == expected) return body;
    // The reducer may send heartbeats at any time after JOINED.
    if (h.type != wire::FrameType::kHeartbeat) return malformed(Errc::kUnexpectedMessage);
  }
}

}  // namespace sluice::engine
