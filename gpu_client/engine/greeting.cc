#include "gpu_client/engine/greeting.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/crc32c.h"
#include "gpu_client/engine/peer_code.h"
#include "transport/transport.h"

namespace sluice::engine {
namespace {

using transport::tcp::Socket;

constexpr Nanos kFirstRetry = 20 * kMillisecond;
constexpr Nanos kLongestRetry = 500 * kMillisecond;

Result<Socket> connect_patiently(const config::Endpoint& reducer, const Identity& who, Nanos deadline) {
  for (Nanos pause = kFirstRetry;; pause = std::min(2 * pause, kLongestRetry)) {
    auto socket = connect_once(reducer, who, deadline);
    if (socket || socket.error().code == Errc::kInvalidArgument) return socket;
    if (monotonic_now() + pause >= deadline) {
      // "connection refused" says more than that the time was over.
      return fail(Errc::kTimeout, socket.error().text);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
  }
}

Result<wire::Nonce> fresh_nonce() {
  wire::Nonce nonce;
  for (size_t have = 0; have < nonce.size();) {
    const ssize_t n = ::getrandom(nonce.data() + have, nonce.size() - have, 0);
    if (n < 0 && errno != EINTR) return fail(Errc::kSystem, "the system gives no random bytes");
    if (n > 0) have += static_cast<size_t>(n);
  }
  return nonce;
}

struct Received {
  Status status;
  bool malformed = false;  // the bytes are wrong, rather than missing
};

// One control frame, checked as far as that goes without knowing who sends it.
Received receive_frame(const Socket& from, wire::FrameHeader& h, std::vector<std::byte>& body,
                       const Until& until) {
  std::array<std::byte, wire::kHeaderBytes> raw;
  std::array<std::byte, transport::kMaxExtensions> area;
  if (const Status s = transport::tcp::read_exact(from, raw, until); !s.ok()) return {s};
  if (const Status s = wire::decode_header(raw, h); !s.ok()) return {s, true};
  if (wire::is_data(h.type)) return {Errc::kUnexpectedMessage, true};
  if (h.extension_bytes() > area.size()) return {Errc::kBadExtension, true};
  const std::span extensions(area.data(), h.extension_bytes());
  if (const Status s = transport::tcp::read_exact(from, extensions, until); !s.ok()) return {s};
  if (const Status s = wire::verify_header(raw, extensions); !s.ok()) return {s, true};
  body.resize(h.length);
  if (const Status s = transport::tcp::read_exact(from, body, until); !s.ok()) return {s};
  const bool checked = (h.flags & wire::kFlagPayloadCrc) != 0;
  if (checked && crc32c(body) != h.payload_crc) return {Errc::kBadPayloadCrc, true};
  return {};
}

tl::unexpected<Error> broke(const Greeting& g, Status status, const std::string& doing) {
  std::string what = "connection broke";
  if (status.code() == Errc::kTimeout) what = "no answer in time";
  if (status.code() == Errc::kClosed) what = "closed the connection";
  if (status.code() == Errc::kShutdown) what = "interrupted";
  // What TLS has against us comes after our own side of the handshake is done.
  const transport::tcp::SecureStream* const secured = g.socket.secured();
  if (status.code() == Errc::kReset && secured != nullptr && !secured->why().empty()) what = secured->why();
  const bool ours = status.code() == Errc::kTimeout || status.code() == Errc::kShutdown;
  return fail(ours ? status.code() : Errc::kReducerLost, g.name + ": " + what + " while " + doing);
}

template <typename Message>
Error told(const Greeting& g, const std::vector<std::byte>& body, const char* verb) {
  Message m;
  if (const Status s = wire::decode_body(body, m); !s.ok())
    return {s.code(), g.name + ": its refusal is malformed"};
  return {from_peer(m.code), g.name + " " + verb + ": " + printable(m.text)};
}

Result<void> check_welcome(const Greeting& g, const Identity& who) {
  const wire::Welcome& w = g.welcome;
  if (w.version < g.hello.min_version || w.version > g.hello.max_version) {
    return fail(Errc::kNoCommonVersion, g.name + ": chose protocol version " + std::to_string(w.version) +
                                            ", this program speaks " +
                                            wire::version_range(g.hello.min_version, g.hello.max_version));
  }
  if (!who.token) {
    if (w.proof == 0) return {};
    return fail(Errc::kUnauthenticated,
                g.name + ": wants proof of the job token; give key_file or token_file");
  }
  if (w.proof == 0) {
    return fail(Errc::kUnauthenticated, g.name + ": does not prove the job token; it runs without a key");
  }
  if (!wire::equal_digests(wire::server_proof(*who.token, g.hello, w), w.mac)) {
    return fail(Errc::kUnauthenticated,
                g.name + ": its proof of the token of job \"" + who.job + "\" is wrong; key or job differs");
  }
  return {};
}

Result<void> go_on_in_tls(Greeting& g, const config::Endpoint& reducer, const Identity& who,
                          const Until& until) {
  if (!who.tls) return {};
  if ((g.welcome.features & wire::kFeatureTls) == 0) {
    if (!who.tls->required) return {};
    return fail(Errc::kUnauthenticated, g.name + ": does not offer TLS, and SLUICE_TLS is `require`");
  }
  const wire::Digest bound = wire::tls_binding(g.hello, g.welcome);
  transport::tcp::TlsPeer peer{.identity = who.job,
                               .psk = std::nullopt,
                               .host = reducer.name.empty() ? reducer.host : reducer.name,
                               .bound = std::as_bytes(std::span(bound))};
  if (!who.tls->context->has_ca() && who.token) {
    const wire::Digest key = wire::tls_key(*who.token);
    std::ranges::copy(std::as_bytes(std::span(key)), peer.psk.emplace().begin());
  }
  auto shaken = transport::tcp::shake_hands(g.socket, *who.tls->context, peer, until);
  if (!shaken) return add_context(g.name, shaken.error());
  return {};
}

}  // namespace

std::string printable(std::string text) {
  for (char& c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < ' ' || u == 0x7f) c = ' ';
  }
  return text;
}

std::string name_of(const config::Endpoint& reducer) {
  config::Endpoint unweighted = reducer;
  unweighted.weight = 1;
  return "reducer " + config::to_string(unweighted);
}

Result<Socket> connect_once(const config::Endpoint& reducer, const Identity& who, const Until& until) {
  transport::tcp::SocketOptions options;
  options.local_address = who.interface_address;
  return transport::tcp::connect_to(reducer.host, reducer.port, options, until);
}

Result<Greeting> introduce(Socket socket, const config::Endpoint& reducer, std::string name,
                           const Identity& who, wire::Purpose purpose, uint32_t lane, uint64_t incarnation,
                           const Until& until) {
  auto nonce = fresh_nonce();
  if (!nonce) return tl::unexpected(nonce.error());
  Greeting g;
  g.socket = std::move(socket);
  g.name = std::move(name);
  g.hello.purpose = purpose;
  g.hello.rank = who.rank;
  g.hello.ranks = who.ranks;
  g.hello.lane = lane;
  g.hello.session = who.session;
  g.hello.incarnation = incarnation;
  g.hello.features = who.survives ? wire::kFeaturesSurvive : 0;
  if (who.tls) g.hello.features |= wire::kFeatureTls;
  if (purpose == wire::Purpose::kLane && who.lanes.rdma) g.hello.features |= wire::kFeatureRdma;
  g.hello.nonce = *nonce;
  g.hello.job = who.job;
  g.hello.tenant = who.tenant;
  auto welcome = ask<wire::Welcome>(g, g.hello, until);
  if (!welcome) return tl::unexpected(welcome.error());
  g.welcome = std::move(*welcome);
  if (auto checked = check_welcome(g, who); !checked) return tl::unexpected(checked.error());
  if (auto secured = go_on_in_tls(g, reducer, who, until); !secured) return tl::unexpected(secured.error());
  return g;
}

Result<Greeting> greet(const config::Endpoint& reducer, const Identity& who, wire::Purpose purpose,
                       uint32_t lane, uint64_t incarnation, Nanos deadline) {
  auto socket = connect_patiently(reducer, who, deadline);
  if (!socket) return add_context(name_of(reducer), socket.error());
  return introduce(std::move(*socket), reducer, name_of(reducer), who, purpose, lane, incarnation, deadline);
}

wire::Mac proof(const Greeting& greeting, const Identity& who, uint64_t view_hash) {
  if (!who.token || greeting.welcome.proof == 0) return {};
  return wire::client_proof(*who.token, greeting.hello, greeting.welcome, view_hash);
}

Result<void> send_frame(const Greeting& to, const std::vector<std::byte>& frame, const Until& until) {
  const Status s = transport::tcp::write_all(to.socket, frame, until);
  // After a reset the reason may still be readable: let the receive report.
  if (s.ok() || s.code() == Errc::kReset) return {};
  return broke(to, s, "sending the handshake");
}

Result<std::vector<std::byte>> receive_body(const Greeting& from, wire::FrameType expected,
                                            const Until& until) {
  const std::string doing = std::string("waiting for ") + wire::to_string(expected);
  const auto malformed = [&](Status s) {
    return fail(s.code(), from.name + ": does not speak this protocol: " + std::string(to_string(s.code())) +
                              " while " + doing);
  };
  for (;;) {
    wire::FrameHeader h;
    std::vector<std::byte> body;
    if (const Received r = receive_frame(from.socket, h, body, until); !r.status.ok()) {
      if (r.malformed) return malformed(r.status);
      return broke(from, r.status, doing);
    }
    if (h.type == wire::FrameType::kRefused)
      return tl::unexpected(told<wire::Refused>(from, body, "refused"));
    if (h.type == wire::FrameType::kAbort)
      return tl::unexpected(told<wire::Abort>(from, body, "ended the session"));
    if (h.type == expected) return body;
    // A heartbeat may cross any request once JOINED has been sent.
    if (h.type != wire::FrameType::kHeartbeat) return malformed(Errc::kUnexpectedMessage);
  }
}

}  // namespace sluice::engine
