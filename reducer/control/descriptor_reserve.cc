#include "reducer/control/descriptor_reserve.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "core/clock.h"
#include "wire/messages.h"

namespace sluice::reducer {

using transport::tcp::Socket;

size_t DescriptorReserve::refuse_waiting(int listener, const std::string& text) {
  size_t count = 0;
  for (; !reserved_.empty(); ++count) {
    reserved_.pop_back();
    Socket socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) break;
    refuse(std::move(socket), text);
  }
  return count;
}

void DescriptorReserve::refuse(Socket socket, const std::string& text) {
  if (refused_.size() >= kMaxRefused) return;
  const std::vector<std::byte> frame =
      wire::encode_message(wire::Refused{{.code = Errc::kTooMany, .rank = wire::kNoRank, .text = text}}, 0);
  (void)::send(socket.fd(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket.fd(), SHUT_WR);
  refused_at_ = monotonic_now();
  refused_.push_back(std::move(socket));
}

void DescriptorReserve::tick(Nanos now) {
  if (!refused_.empty() && now - refused_at_ >= kReadTime) release();
}

void DescriptorReserve::release() {
  for (const Socket& socket : refused_) {
    // A close with unread bytes resets the connection, and the client might lose the reason.
    std::array<std::byte, 1024> hello;
    (void)::recv(socket.fd(), hello.data(), hello.size(), MSG_DONTWAIT);
  }
  refused_.clear();
  while (reserved_.size() < size_) {
    Socket spare(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!spare.valid()) return;
    reserved_.push_back(std::move(spare));
  }
}

}  // namespace sluice::reducer
