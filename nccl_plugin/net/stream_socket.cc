#include "nccl_plugin/net/stream_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>

#include "transport/tcp/address.h"
#include "transport/tcp/socket_options.h"

namespace sluice::nccl::net {
namespace {

using transport::tcp::Socket;

socklen_t size_of(const sockaddr_storage& a) noexcept {
  return a.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

// False when `text` is not an address of that family.
bool parse_address(const std::string& text, sa_family_t family, sockaddr_storage& out) {
  out.ss_family = family;
  void* place = family == AF_INET6 ? static_cast<void*>(&reinterpret_cast<sockaddr_in6&>(out).sin6_addr)
                                   : static_cast<void*>(&reinterpret_cast<sockaddr_in&>(out).sin_addr);
  return ::inet_pton(family, text.c_str(), place) == 1;
}

}  // namespace

Result<Socket> start_connect(const sockaddr_storage& to, const std::string& local_address) {
  using transport::tcp::error_text;
  Socket s(::socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!s.valid()) {
    const bool is_exhausted = errno == EMFILE || errno == ENFILE;
    return fail(is_exhausted ? Errc::kExhausted : Errc::kSystem, error_text(errno));
  }
  transport::tcp::apply_options(s.fd(), {});
  sockaddr_storage local{};
  if (parse_address(local_address, to.ss_family, local)) {
    // Lets connect() choose the port by the whole four-tuple. Otherwise all comms of the host would share the
    // ephemeral port range.
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

Status poll_connect(int fd, int& error) noexcept {
  pollfd p{.fd = fd, .events = POLLOUT, .revents = 0};
  if (::poll(&p, 1, 0) <= 0) return Errc::kWouldBlock;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? Errc::kOk : Errc::kSystem;
}

}  // namespace sluice::nccl::net
