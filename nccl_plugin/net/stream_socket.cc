#include "nccl_plugin/net/stream_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>

#include "nccl_plugin/net/limits.h"
#include "transport/tcp/address.h"

namespace sluice::nccl::net {
namespace {

using transport::tcp::Socket;

void set(int fd, int level, int option, int value) noexcept {
  ::setsockopt(fd, level, option, &value,
               sizeof value);  // on a host without one of them the rest still holds
}

socklen_t size_of(const sockaddr_storage& a) noexcept {
  return a.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

// False when `text` is no address of that family.
bool parse(const std::string& text, sa_family_t family, sockaddr_storage& out) {
  out.ss_family = family;
  void* place = family == AF_INET6 ? static_cast<void*>(&reinterpret_cast<sockaddr_in6&>(out).sin6_addr)
                                   : static_cast<void*>(&reinterpret_cast<sockaddr_in&>(out).sin_addr);
  return ::inet_pton(family, text.c_str(), place) == 1;
}

}  // namespace

void prepare_stream(int fd) noexcept {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(kKeepaliveAfter / kSecond));
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(kKeepaliveAfter / kSecond));
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(kVanishedAfter / kKeepaliveAfter));
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kVanishedAfter / kMillisecond));
}

Result<Socket> begin_connect(const sockaddr_storage& to, const std::string& local_address) {
  using transport::tcp::error_text;
  Socket s(::socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!s.valid()) {
    const bool none_left = errno == EMFILE || errno == ENFILE;
    return fail(none_left ? Errc::kExhausted : Errc::kSystem, error_text(errno));
  }
  transport::tcp::apply_options(s.fd(), {});
  prepare_stream(s.fd());
  sockaddr_storage local{};
  if (parse(local_address, to.ss_family, local)) {
    // The port is chosen at connect, by the whole four-tuple: or the ephemeral range would be shared by all
    // comms of the host.
    set(s.fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (::bind(s.fd(), reinterpret_cast<const sockaddr*>(&local), size_of(local)) != 0)
      return fail(Errc::kSystem, "cannot bind to " + local_address + ": " + error_text(errno));
  }
  if (::connect(s.fd(), reinterpret_cast<const sockaddr*>(&to), size_of(to)) != 0 && errno != EINPROGRESS &&
      errno != EINTR)
    return fail(Errc::kSystem, error_text(errno));
  return s;
}

Status connect_progress(int fd, int& error) noexcept {
  pollfd p{.fd = fd, .events = POLLOUT, .revents = 0};
  if (::poll(&p, 1, 0) <= 0) return Errc::kWouldBlock;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? Errc::kOk : Errc::kSystem;
}

}  // namespace sluice::nccl::net
