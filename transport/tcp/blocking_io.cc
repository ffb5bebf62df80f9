#include "transport/tcp/blocking_io.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "core/clock.h"

namespace sluice::transport::tcp {
namespace {

// Milliseconds for ::poll until `deadline`, rounded up; 0 when it has passed.
int poll_timeout(Nanos deadline) noexcept {
  const Nanos left = deadline - monotonic_now();
  if (left <= 0) return 0;
  return static_cast<int>(std::min<uint64_t>(div_ceil(static_cast<uint64_t>(left), kMillisecond), 1U << 30));
}

// `transfer` behaves like recv(2) or send(2); `events` is what it waits for.
template <typename Byte, typename Transfer>
Status transfer_all(int fd, short events, std::span<Byte> bytes, const Deadline& until,
                    Transfer transfer) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = transfer(bytes);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
    } else if (n == 0) {
      return Errc::kClosed;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (const Status ready = wait_ready(fd, events, until); !ready.ok()) return ready;
    } else if (errno != EINTR) {
      return Errc::kReset;
    }
  }
  return Errc::kOk;
}

}  // namespace

Status wait_ready(int fd, short events, const Deadline& until) noexcept {
  // poll(2) ignores a negative descriptor.
  std::array<pollfd, 2> p{{{.fd = fd, .events = events, .revents = 0},
                           {.fd = until.interrupt_fd, .events = POLLIN, .revents = 0}}};
  for (;;) {
    const int timeout = poll_timeout(until.time);
    const int n = ::poll(p.data(), p.size(), timeout);
    if (n > 0) return p[1].revents != 0 ? Errc::kShutdown : Errc::kOk;
    if (n == 0 && timeout == 0) return Errc::kTimeout;
    if (n < 0 && errno != EINTR) return Errc::kSystem;
  }
}

Status read_exact(const Socket& socket, std::span<std::byte> out, const Deadline& until) noexcept {
  return transfer_all(socket.fd(), POLLIN, out, until, [&socket](std::span<std::byte> to) {
    iovec block{.iov_base = to.data(), .iov_len = to.size()};
    return socket.receive({&block, 1});
  });
}

Status write_all(const Socket& socket, std::span<const std::byte> data, const Deadline& until) noexcept {
  return transfer_all(socket.fd(), POLLOUT, data, until, [&socket](std::span<const std::byte> from) {
    // iovec has no const variant.
    iovec block{.iov_base = const_cast<std::byte*>(from.data()), .iov_len = from.size()};
    return socket.send({&block, 1});
  });
}

Result<void> tls_handshake(Socket& socket, const TlsContext& context, const TlsPeer& peer,
                           const Deadline& until) {
  auto stream = context.open(socket.fd(), peer);
  if (!stream) return tl::unexpected(stream.error());
  for (;;) {
    using Step = SecureStream::Step;
    const Step step = (*stream)->handshake();
    if (step == Step::kDone) break;
    // A peer that refuses sends an alert first.
    if (step == Step::kPeerEnded) return fail(Errc::kReset, (*stream)->error());
    if (step == Step::kFailed) return fail(Errc::kUnauthenticated, (*stream)->error());
    const short events = step == Step::kWantsRead ? POLLIN : POLLOUT;
    if (const Status ready = wait_ready(socket.fd(), events, until); !ready.ok())
      return fail(ready.code(),
                  ready == Errc::kShutdown ? "TLS handshake interrupted" : "TLS handshake timed out");
  }
  socket.attach_tls(std::move(*stream));
  return {};
}

}  // namespace sluice::transport::tcp
