#include "nccl_plugin/net/stream_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>

#include "transport/tcp/address.h"

namespace sluice::nccl::net {
namespace {

using transport::tcp::Socket;

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

Result<Socket> begin_connect(const sockaddr_storage& to, const std::string& local_address) {
  using transport::tcp::error_text;
  Socket s(::socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!s.valid()) {
    const bool none_left = errno == EMFILE || errno == ENFILE;
    return fail(none_left ? Errc::kExhausted : Errc::kSystem, error_text(errno));
  }
  transport::tcp::apply_options(s.fd(), {});
  sockaddr_storage local{};
  if (parse(local_address, to.ss_family, local)) {
    // The port is chosen at connect, by the whole four-tuple: or the ephemeral range would be shared by all
    // comms of the host.
    const int on = 1;
    ::setsockopt(s.fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
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
