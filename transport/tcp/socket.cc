#include "transport/tcp/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "transport/tcp/address.h"

namespace sluice::transport::tcp {
namespace {

// Keepalive, in seconds: docs/timeouts.md.
constexpr int kKeepaliveIdle = 60;
constexpr int kKeepaliveInterval = 10;
constexpr int kKeepaliveCount = 6;

// Nothing when the host does not say (the file is absent in some network namespaces).
size_t host_limit(const char* path) {
  size_t value = 0;
  std::ifstream file(path);
  if (!(file >> value)) return 0;
  return value;
}

void add_note(std::string& notes, const std::string& note) {
  if (!notes.empty()) notes += "; ";
  notes += note;
}

// True when the whole of `bytes` is allowed. A request above the limit would be clamped in silence and would
// switch the kernel's autotuning off for good: worse than not asking.
bool allowed(const char* name, size_t bytes, std::string& notes) {
  const size_t limit = host_limit((std::string("/proc/sys/net/core/") + name).c_str());
  if (limit >= bytes) return true;
  add_note(notes, std::string("net.core.") + name + " is " +
                      (limit == 0 ? "unknown" : std::to_string(limit)) + ", " + std::to_string(bytes) +
                      " wanted: buffer sizes are left to the kernel");
  return false;
}

bool set_int(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// Milliseconds for ::poll until `deadline`, rounded up so that a wait never ends just before it; 0 when it
// has passed.
int poll_timeout(Nanos deadline) noexcept {
  const Nanos left = deadline - monotonic_now();
  if (left <= 0) return 0;
  return static_cast<int>(std::min<uint64_t>(div_ceil(static_cast<uint64_t>(left), kMillisecond), 1U << 30));
}

// Waits for `events`; errors of the socket count as ready, the call that follows reports them.
Status wait_ready(int fd, short events, const Until& until) noexcept {
  // poll passes over a negative descriptor
  std::array<pollfd, 2> p{
      {{.fd = fd, .events = events, .revents = 0}, {.fd = until.interrupt, .events = POLLIN, .revents = 0}}};
  for (;;) {
    const int timeout = poll_timeout(until.deadline);
    const int n = ::poll(p.data(), p.size(), timeout);
    if (n > 0) return p[1].revents != 0 ? Errc::kShutdown : Errc::kOk;
    if (n == 0 && timeout == 0) return Errc::kTimeout;
    if (n < 0 && errno != EINTR) return Errc::kSystem;
  }
}

Result<void> bind_local(int fd, int family, const std::string& address) {
  auto local = resolve(address, 0, family, AI_NUMERICHOST | AI_PASSIVE);
  if (!local) return add_context("source address", local.error());
  if (::bind(fd, (*local)->ai_addr, (*local)->ai_addrlen) == 0) return {};
  // An address that is not ours will not be at the next try either.
  return fail(errno == EADDRNOTAVAIL ? Errc::kInvalidArgument : Errc::kSystem,
              "cannot bind to source address " + address + ": " + error_text(errno));
}

// With nobody listening on a port of the ephemeral range, a socket of the same host can be given that very
// port and meet itself.
bool connected_to_itself(int fd) {
  sockaddr_storage local{}, peer{};
  socklen_t local_size = sizeof local, peer_size = sizeof peer;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && local_size == peer_size &&
         std::memcmp(&local, &peer, local_size) == 0;
}

tl::unexpected<Error> no_connection(int number) {
  return fail(number == ECONNREFUSED ? Errc::kReset : Errc::kSystem, error_text(number));
}

Result<Socket> connect_one(const addrinfo& to, const SocketOptions& options, const Until& until) {
  Socket s(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, to.ai_protocol));
  if (!s.valid()) return fail(Errc::kSystem, error_text(errno));
  apply_options(s.fd(), options);
  set_int(s.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (!options.local_address.empty()) {
    if (auto bound = bind_local(s.fd(), to.ai_family, options.local_address); !bound)
      return tl::unexpected(bound.error());
  }
  if (::connect(s.fd(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return no_connection(errno);
    if (const Status ready = wait_ready(s.fd(), POLLOUT, until); !ready.ok())
      return fail(ready.code(), ready == Errc::kShutdown ? "interrupted" : "no answer in time");
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return no_connection(error);
  }
  if (connected_to_itself(s.fd())) return no_connection(ECONNREFUSED);
  return s;
}

Result<Socket> listen_one(const addrinfo& at, const SocketOptions& options, int backlog,
                          AppliedOptions& applied) {
  Socket s(::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol));
  if (!s.valid()) return fail(errno == EAFNOSUPPORT ? Errc::kUnsupported : Errc::kSystem, error_text(errno));
  set_int(s.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Dual stack: IPv4 peers come in as mapped addresses. Some hosts are set to V6ONLY by default.
  if (at.ai_family == AF_INET6) set_int(s.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // Accepted sockets inherit the buffers, and the window scale is fixed at the handshake.
  applied = apply_options(s.fd(), options);
  if (::bind(s.fd(), at.ai_addr, at.ai_addrlen) != 0 || ::listen(s.fd(), backlog) != 0) {
    const bool no_such_family = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
    return fail(no_such_family ? Errc::kUnsupported : Errc::kSystem, error_text(errno));
  }
  return s;
}

}  // namespace

Status wait_readable(int fd, const Until& until) noexcept {
  return wait_ready(fd, POLLIN, until);
}

Socket::Socket(Socket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      secure_(std::move(other.secure_)),
      companion_(std::move(other.companion_)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    secure_ = std::move(other.secure_);
    companion_ = std::move(other.companion_);
  }
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

int Socket::release() noexcept {
  SLUICE_ASSERT(!secure_ && !companion_);
  return std::exchange(fd_, -1);
}

RawSocket Socket::release_raw() noexcept {
  return {.fd = std::exchange(fd_, -1), .secure = secure_.release(), .companion = companion_.release()};
}

bool Socket::end_sending() const noexcept {
  if (secure_ && !secure_->end()) return false;
  ::shutdown(fd_, SHUT_WR);
  return true;
}

void Socket::end() const noexcept {
  static_cast<void>(end_sending());
  ::shutdown(fd_, SHUT_RDWR);
}

void Socket::reset() const noexcept {
  // To dissolve the association sends it at once; with SO_LINGER alone it would come when the last copy of
  // the descriptor is closed.
  const linger abort{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  (void)::connect(fd_, &nobody, sizeof nobody);
}

AppliedOptions apply_options(int fd, const SocketOptions& options) {
  AppliedOptions applied;
  if (options.buffer_bytes > 0) {
    const int bytes = static_cast<int>(std::min<size_t>(options.buffer_bytes, kGiB));
    if (allowed("rmem_max", options.buffer_bytes, applied.note) &&
        allowed("wmem_max", options.buffer_bytes, applied.note)) {
      applied.buffers_set =
          set_int(fd, SOL_SOCKET, SO_RCVBUF, bytes) && set_int(fd, SOL_SOCKET, SO_SNDBUF, bytes);
      if (!applied.buffers_set) add_note(applied.note, "socket buffers not set: " + error_text(errno));
    }
  }
  const std::string& cc = options.congestion_control;
  if (!cc.empty() &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc.data(), static_cast<socklen_t>(cc.size())) != 0) {
    applied.congestion_control_set = false;
    add_note(applied.note, "congestion control " + cc + " not set: " + error_text(errno));
  }
  return applied;
}

Result<Socket> connect_to(const std::string& host, uint16_t port, const SocketOptions& options,
                          const Until& until) {
  const std::string where = endpoint_text(host, port);
  auto addresses = resolve(host, port, AF_UNSPEC, AI_ADDRCONFIG);
  if (!addresses) return add_context("cannot connect to " + where, addresses.error());
  int left = 0;
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) ++left;
  Error last{Errc::kSystem, "no address"};
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next, --left) {
    // An address that swallows packets must not eat the time of those behind it.
    const Nanos now = monotonic_now();
    const Nanos share = std::max<Nanos>(0, (until.deadline - now) / left);
    auto s = connect_one(*a, options, {now + share, until.interrupt});
    if (s) return s;
    last = s.error();
    if (last.code == Errc::kInvalidArgument || last.code == Errc::kShutdown) break;
  }
  return add_context("cannot connect to " + where, last);
}

Result<Socket> listen_on(const std::string& host, uint16_t port, const SocketOptions& options, int backlog,
                         AppliedOptions* applied) {
  AppliedOptions unheard;
  AppliedOptions& said = applied != nullptr ? *applied : unheard;
  const std::string where = endpoint_text(host.empty() ? "*" : host, port);
  if (!host.empty()) {
    auto at = resolve(host, port, AF_UNSPEC, AI_PASSIVE);
    if (!at) return add_context("cannot listen on " + where, at.error());
    auto s = listen_one(**at, options, backlog, said);
    return s ? std::move(s) : Result<Socket>(add_context("cannot listen on " + where, s.error()));
  }
  Error last{Errc::kSystem, "no address"};
  for (const char* wildcard : {"::", "0.0.0.0"}) {
    auto at = resolve(wildcard, port, AF_UNSPEC, AI_PASSIVE | AI_NUMERICHOST);
    if (!at) {
      last = at.error();
      continue;
    }
    auto s = listen_one(**at, options, backlog, said);
    if (s) return s;
    last = s.error();
    if (last.code != Errc::kUnsupported) break;  // IPv6 is there, so the reason holds for IPv4 too
  }
  return add_context("cannot listen on " + where, {Errc::kSystem, last.text});
}

Result<uint16_t> bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return fail(Errc::kSystem, "cannot read the bound port: " + error_text(errno));
  }
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return fail(Errc::kSystem, "not an internet socket");
}

// Lanes carry no heartbeats, and a rank may be late for hours: a peer that is gone, or a path that forgot the
// connection, shows only to a probe. Never TCP_USER_TIMEOUT: it would end what is merely slow.
void probe_when_idle(int fd) noexcept {
  (void)set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  (void)set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdle);
  (void)set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveInterval);
  (void)set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveCount);
}

Errc broken_by(int error) noexcept {
  return error == ETIMEDOUT ? Errc::kTimeout : Errc::kReset;
}

std::string peer_name(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unconnected";
  return address_text(address);
}

namespace {

// `receive` and `send` as the calls of the system.
template <typename Receive>
Status read_exactly(int fd, std::span<std::byte> out, const Until& until, Receive receive) noexcept {
  while (!out.empty()) {
    const ssize_t n = receive(out);
    if (n > 0) {
      out = out.subspan(static_cast<size_t>(n));
    } else if (n == 0) {
      return Errc::kClosed;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (const Status ready = wait_ready(fd, POLLIN, until); !ready.ok()) return ready;
    } else if (errno != EINTR) {
      return Errc::kReset;
    }
  }
  return Errc::kOk;
}

template <typename Send>
Status write_completely(int fd, std::span<const std::byte> data, const Until& until, Send send) noexcept {
  while (!data.empty()) {
    const ssize_t n = send(data);
    if (n >= 0) {
      data = data.subspan(static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (const Status ready = wait_ready(fd, POLLOUT, until); !ready.ok()) return ready;
    } else if (errno != EINTR) {
      return Errc::kReset;
    }
  }
  return Errc::kOk;
}

}  // namespace

Status read_exact(int fd, std::span<std::byte> out, const Until& until) noexcept {
  return read_exactly(fd, out, until, [fd](std::span<std::byte> to) {
    return ::recv(fd, to.data(), to.size(), MSG_DONTWAIT);
  });
}

Status write_all(int fd, std::span<const std::byte> data, const Until& until) noexcept {
  return write_completely(fd, data, until, [fd](std::span<const std::byte> from) {
    return ::send(fd, from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

Status read_exact(const Socket& socket, std::span<std::byte> out, const Until& until) noexcept {
  return read_exactly(socket.fd(), out, until, [&socket](std::span<std::byte> to) {
    iovec block{.iov_base = to.data(), .iov_len = to.size()};
    return socket.receive({&block, 1});
  });
}

Status write_all(const Socket& socket, std::span<const std::byte> data, const Until& until) noexcept {
  return write_completely(socket.fd(), data, until, [&socket](std::span<const std::byte> from) {
    iovec block{.iov_base = const_cast<std::byte*>(from.data()), .iov_len = from.size()};  // serves reads too
    return socket.send({&block, 1});
  });
}

Result<void> shake_hands(Socket& socket, const TlsContext& context, const TlsPeer& peer, const Until& until) {
  auto stream = context.open(socket.fd(), peer);
  if (!stream) return tl::unexpected(stream.error());
  for (;;) {
    using Step = SecureStream::Step;
    const Step step = (*stream)->handshake();
    if (step == Step::kDone) break;
    if (step == Step::kFailed) return fail(Errc::kUnauthenticated, (*stream)->why());
    const short events = step == Step::kWantsRead ? POLLIN : POLLOUT;
    if (const Status ready = wait_ready(socket.fd(), events, until); !ready.ok())
      return fail(ready.code(), ready == Errc::kShutdown ? "interrupted" : "no answer in time");
  }
  socket.secure(std::move(*stream));
  return {};
}

}  // namespace sluice::transport::tcp
