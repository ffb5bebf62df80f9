#include "bench/e2e/star/star_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/port_file.h"
#include "bench/e2e/star/star_group.h"
#include "bench/e2e/star/star_shape.h"
#include "core/clock.h"
#include "core/log.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {
namespace {

namespace tcp = transport::tcp;

constexpr Nanos kHandshakeTimeout = 5 * kSecond;
constexpr Nanos kGroupTimeout = 60 * kSecond;  // from the first worker of a group to the last
constexpr Nanos kNoTimeout = -1;

// Returns no socket when no worker connects within `timeout`.
std::optional<tcp::Socket> accept_one(int listener, Nanos timeout) {
  pollfd p{.fd = listener, .events = POLLIN, .revents = 0};
  if (poll(&p, 1, timeout < 0 ? -1 : static_cast<int>(timeout / kMillisecond)) != 1) return std::nullopt;
  tcp::Socket socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) throw Failure(kExitFailure, fmt::format("accept: {}", std::strerror(errno)));
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

Result<StarShape> read_handshake(int fd) {
  StarHandshake handshake;
  if (const Status s = tcp::read_exact(fd, handshake, monotonic_now() + kHandshakeTimeout); !s.ok())
    return fail(s.code(), "cannot read the handshake: " + std::string(to_string(s.code())));
  return decode_handshake(handshake);
}

void serve_one_group(int listener, Nanos spin) {
  std::vector<tcp::Socket> sockets;
  StarShape shape;
  Nanos until = 0;
  do {
    auto socket = accept_one(listener, sockets.empty() ? kNoTimeout : until - monotonic_now());
    if (!socket) {
      if (sockets.empty() || monotonic_now() < until) continue;
      log::warn(fmt::format("only {} of {} workers connected within {} s; closing their connections",
                            sockets.size(), shape.workers, kGroupTimeout / kSecond));
      return;
    }
    auto requested = read_handshake(socket->fd());
    if (requested && !sockets.empty() && *requested != shape)
      requested = fail(Errc::kMismatch, "the handshake differs from that of the waiting workers");
    if (!requested) {
      log::warn(fmt::format("connection from {} refused: {}", tcp::peer_name(socket->fd()),
                            requested.error().text));
      continue;
    }
    if (sockets.empty()) {
      shape = *requested;
      until = monotonic_now() + kGroupTimeout;
    }
    sockets.push_back(std::move(*socket));
  } while (sockets.size() < shape.workers || sockets.empty());
  StarGroup(shape, std::move(sockets), spin).serve();
}

}  // namespace

void run_star_server(const StarServerOptions& options) {
  auto listening = tcp::listen_on(options.host, options.port, {});
  if (!listening) {
    throw Failure(listening.error().text.find("in use") != std::string::npos ? kExitTryAgain : kExitFailure,
                  listening.error().text);
  }
  const tcp::Socket listener = std::move(*listening);
  const uint16_t port = value_or_fail(tcp::bound_port(listener.fd()), kExitFailure);
  if (!options.port_file.empty()) {
    if (auto written = write_port_file(options.port_file, port); !written)
      throw Failure(kExitFailure, written.error().text);
  }
  log::info(fmt::format("star server listening on {}",
                        tcp::endpoint_text(options.host.empty() ? "*" : options.host, port)));
  for (;;) serve_one_group(listener.fd(), options.spin);
}

}  // namespace sluice::bench
