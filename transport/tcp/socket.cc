#include "transport/tcp/socket.h"

#include <unistd.h>

#include <cerrno>

#include "core/assert.h"

namespace sluice::transport::tcp {

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    tls_ = std::move(other.tls_);
    channel_ = std::move(other.channel_);
  }
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

int Socket::release() noexcept {
  SLUICE_ASSERT(!tls_ && !channel_);
  return std::exchange(fd_, -1);
}

RawSocket Socket::release_raw() noexcept {
  return {.fd = std::exchange(fd_, -1), .tls = tls_.release(), .channel = channel_.release()};
}

bool Socket::shutdown_send() const noexcept {
  if (tls_ && !tls_->send_close_notify()) return false;
  ::shutdown(fd_, SHUT_WR);
  return true;
}

void Socket::shutdown() const noexcept {
  static_cast<void>(shutdown_send());
  ::shutdown(fd_, SHUT_RDWR);
}

void Socket::reset() const noexcept {
  // Connecting to AF_UNSPEC resets at once; SO_LINGER alone resets when the last copy of the fd is closed.
  const linger abort{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  const sockaddr unspecified{.sa_family = AF_UNSPEC, .sa_data = {}};
  (void)::connect(fd_, &unspecified, sizeof unspecified);
}

Errc close_reason(int error) noexcept {
  return error == ETIMEDOUT ? Errc::kTimeout : Errc::kReset;
}

}  // namespace sluice::transport::tcp
