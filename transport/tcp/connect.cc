#include "transport/tcp/connect.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "transport/tcp/address.h"

namespace sluice::transport::tcp {
namespace {

Result<void> bind_local(int fd, int family, const std::string& address) {
  auto local = resolve(address, 0, family, AI_NUMERICHOST | AI_PASSIVE);
  if (!local) return add_context("source address", local.error());
  if (::bind(fd, (*local)->ai_addr, (*local)->ai_addrlen) == 0) return {};
  // An address that this host does not have cannot be bound by a retry either.
  return fail(errno == EADDRNOTAVAIL ? Errc::kInvalidArgument : Errc::kSystem,
              "cannot bind to source address " + address + ": " + error_text(errno));
}

// When no process listens on a port of the ephemeral range, the kernel can choose that very port as the
// source port, and the socket connects to itself.
bool is_connected_to_itself(int fd) {
  sockaddr_storage local{}, peer{};
  socklen_t local_size = sizeof local, peer_size = sizeof peer;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && local_size == peer_size &&
         std::memcmp(&local, &peer, local_size) == 0;
}

tl::unexpected<Error> connect_error(int number) {
  return fail(number == ECONNREFUSED ? Errc::kReset : Errc::kSystem, error_text(number));
}

Result<Socket> listen_one(const addrinfo& at, const SocketOptions& options, int backlog,
                          AppliedOptions& applied) {
  Socket s(::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol));
  if (!s.valid()) return fail(errno == EAFNOSUPPORT ? Errc::kUnsupported : Errc::kSystem, error_text(errno));
  set_option(s.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Dual stack: IPv4 peers appear as mapped addresses. Some hosts set IPV6_V6ONLY by default.
  if (at.ai_family == AF_INET6) set_option(s.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // Accepted sockets inherit the buffer sizes, and the TCP handshake fixes the window scale.
  applied = apply_options(s.fd(), options);
  if (::bind(s.fd(), at.ai_addr, at.ai_addrlen) != 0 || ::listen(s.fd(), backlog) != 0) {
    const bool no_such_family = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
    const Errc code = errno == EADDRINUSE ? Errc::kAddressInUse : Errc::kSystem;
    return fail(no_such_family ? Errc::kUnsupported : code, error_text(errno));
  }
  return s;
}

}  // namespace

Result<Socket> connect_one(const addrinfo& to, const SocketOptions& options, const Deadline& until) {
  Socket s(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, to.ai_protocol));
  if (!s.valid()) return fail(Errc::kSystem, error_text(errno));
  apply_options(s.fd(), options);
  set_option(s.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (!options.local_address.empty()) {
    if (auto bound = bind_local(s.fd(), to.ai_family, options.local_address); !bound)
      return tl::unexpected(bound.error());
  }
  if (::connect(s.fd(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return connect_error(errno);
    if (const Status ready = wait_ready(s.fd(), POLLOUT, until); !ready.ok())
      return fail(ready.code(), ready == Errc::kShutdown ? "interrupted" : "connection timed out");
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return connect_error(error);
  }
  if (is_connected_to_itself(s.fd())) return connect_error(ECONNREFUSED);
  return s;
}

Result<Socket> connect_to(const std::string& host, uint16_t port, const SocketOptions& options,
                          const Deadline& until) {
  const std::string where = endpoint_text(host, port);
  auto addresses = resolve(host, port, AF_UNSPEC, AI_ADDRCONFIG);
  if (!addresses) return add_context("cannot connect to " + where, addresses.error());
  int left = 0;
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) ++left;
  Error last{Errc::kSystem, "no address"};
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next, --left) {
    // Each address gets an equal share of the time: one that drops packets must not use up all of it.
    const Nanos now = monotonic_now();
    const Nanos share = std::max<Nanos>(0, (until.time - now) / left);
    auto s = connect_one(*a, options, {now + share, until.interrupt_fd});
    if (s) return s;
    last = s.error();
    if (last.code == Errc::kInvalidArgument || last.code == Errc::kShutdown) break;
  }
  return add_context("cannot connect to " + where, last);
}

Result<Socket> listen_on(const std::string& host, uint16_t port, const SocketOptions& options, int backlog,
                         AppliedOptions* applied) {
  AppliedOptions ignored;
  AppliedOptions& result = applied != nullptr ? *applied : ignored;
  const std::string where = endpoint_text(host.empty() ? "*" : host, port);
  const bool any = host.empty();
  const auto addresses = any ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector{host};
  Error last{Errc::kSystem, "no address"};
  for (const std::string& address : addresses) {
    auto at = resolve(address, port, AF_UNSPEC, any ? AI_PASSIVE | AI_NUMERICHOST : AI_PASSIVE);
    if (!at) {
      last = at.error();
      continue;
    }
    auto s = listen_one(**at, options, backlog, result);
    if (s) return s;
    last = s.error();
    if (last.code != Errc::kUnsupported) break;  // the host has IPv6, so the error applies to IPv4 too
  }
  return add_context("cannot listen on " + where,
                     {any && last.code == Errc::kUnsupported ? Errc::kSystem : last.code, last.text});
}

}  // namespace sluice::transport::tcp
