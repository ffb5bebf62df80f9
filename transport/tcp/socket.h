// Blocking-style set-up of sockets for the cold path: resolve, connect, listen, exact reads and writes, all
// with deadlines.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/result.h"
#include "core/units.h"
#include "transport/tcp/secure_stream.h"

namespace sluice::transport::tcp {

// What another transport has beside a connection: it goes with the socket to the context that adopts it,
// which must be of that transport.
class Companion {
 public:
  Companion() = default;
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;
  virtual ~Companion() = default;
};

// What a Socket owns, where it goes through something that holds values only.
struct RawSocket {
  int fd = -1;
  SecureStream* secure = nullptr;
  Companion* companion = nullptr;
};

// Owns a file descriptor, and the TLS of its connection, or its companion, where that has one.
class Socket {
 public:
  Socket() noexcept = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  explicit Socket(RawSocket raw) noexcept : fd_(raw.fd), secure_(raw.secure), companion_(raw.companion) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  // The caller owns it now. Of a connection without TLS and companion alone.
  [[nodiscard]] int release() noexcept;
  [[nodiscard]] RawSocket release_raw() noexcept;

  // From here on bytes go through `stream`, whose handshake is over.
  void secure(std::unique_ptr<SecureStream> stream) noexcept { secure_ = std::move(stream); }
  [[nodiscard]] const SecureStream* secured() const noexcept { return secure_.get(); }

  // From here on frames go by way of `companion`.
  void accompany(std::unique_ptr<Companion> companion) noexcept { companion_ = std::move(companion); }
  [[nodiscard]] bool accompanied() const noexcept { return companion_ != nullptr; }
  [[nodiscard]] std::unique_ptr<Companion> take_companion() noexcept { return std::move(companion_); }

  // recvmsg and sendmsg, never blocking and never raising SIGPIPE, through TLS where there is TLS. The data
  // path's own calls: no more than a look at a pointer is added to those.
  [[nodiscard]] ssize_t receive(std::span<iovec> blocks) const noexcept {
    if (secure_) return secure_->receive(blocks);
    msghdr message{};
    message.msg_iov = blocks.data();
    message.msg_iovlen = blocks.size();
    return ::recvmsg(fd_, &message, MSG_DONTWAIT);
  }
  [[nodiscard]] ssize_t send(std::span<iovec> blocks) const noexcept {
    if (secure_) return secure_->send(blocks);
    msghdr message{};
    message.msg_iov = blocks.data();
    message.msg_iovlen = blocks.size();
    return ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // After a receive() that gave less than was asked for: true when asking again must wait for an event.
  [[nodiscard]] bool drained() const noexcept { return !secure_ || !secure_->over(); }
  // True when receive() may have something that no event will announce; a receive() tells.
  [[nodiscard]] bool pending() const noexcept { return secure_ && secure_->pending(); }
  // Tells the peer that nothing more comes. False: the socket has no room for the last word of TLS, call
  // again when it is writable.
  [[nodiscard]] bool end_sending() const noexcept;
  // The peer sees an end, though a child forked by this process holds a copy of the descriptor.
  void end() const noexcept;
  // The peer sees a reset, at once, and not an end.
  void reset() const noexcept;

 private:
  int fd_ = -1;
  std::unique_ptr<SecureStream> secure_;
  std::unique_ptr<Companion> companion_;
};

struct SocketOptions {
  size_t buffer_bytes =
      4 * kMiB;  // SO_SNDBUF and SO_RCVBUF, set before connect/listen where the host's limits allow it
                 // (net.core.[rw]mem_max); otherwise the kernel's autotuning is left alone. 0 = leave alone
  std::string congestion_control;  // TCP_CONGESTION; empty = the host's default
  std::string local_address;       // source address to bind before connecting; empty = the route's
};

// How long a call may wait: until a point on the monotonic clock; with an interrupt, until that descriptor
// (the caller's; an eventfd, say) is readable at most, which ends the call with kShutdown.
struct Until {
  // NOLINTNEXTLINE(google-explicit-constructor): most calls have a deadline and nothing else
  constexpr Until(Nanos at, int interrupt_fd = -1) noexcept : deadline(at), interrupt(interrupt_fd) {}
  Nanos deadline;
  int interrupt;
};

// Waits until something can be read from a descriptor, or the end, or an error. kTimeout, kShutdown.
[[nodiscard]] Status wait_readable(int fd, const Until& until) noexcept;

// What the kernel did with the options; for `check` and logs.
struct AppliedOptions {
  bool buffers_set = false;
  bool congestion_control_set = true;  // as asked, or nothing was asked
  std::string note;                    // empty, or why an option was not applied
};

// Applies buffer sizes and congestion control to an unconnected socket. An option the host refuses is a note,
// not an error.
AppliedOptions apply_options(int fd, const SocketOptions& options);

// Resolves `host` (name, IPv4 or IPv6 literal without brackets) and tries each address until one accepts,
// until then. Returns a non-blocking socket with TCP_NODELAY. Error text names host, port and reason.
// kInvalidArgument: the local address can't be bound, trying again is no use. kReset: the host is there and
// nobody listens. Of several addresses the last one's reason counts. The interrupt does not end the resolving
// of a name.
[[nodiscard]] Result<Socket> connect_to(const std::string& host, uint16_t port, const SocketOptions& options,
                                        const Until& until);

// Binds and listens; port 0 = chosen by the OS (bound_port tells). host empty = all addresses, IPv6 and IPv4.
// kSystem with "address already in use" in the text when taken. `applied`, when given: what became of the
// options, also when listening failed after it.
[[nodiscard]] Result<Socket> listen_on(const std::string& host, uint16_t port, const SocketOptions& options,
                                       int backlog = 1024, AppliedOptions* applied = nullptr);
[[nodiscard]] Result<uint16_t> bound_port(int fd);

// Has the kernel probe an idle peer (docs/timeouts.md, keepalive).
void probe_when_idle(int fd) noexcept;

// Why a connection is closed whose socket failed with `error`: probes or sent bytes that nobody answered are
// a path gone silent, not a peer gone.
[[nodiscard]] Errc broken_by(int error) noexcept;

// "10.0.0.3:50112", "[::1]:7470".
[[nodiscard]] std::string peer_name(int fd);

// Exactly out.size() bytes, or kTimeout, kShutdown, kClosed (end of stream) or kReset. The fd is
// non-blocking.
[[nodiscard]] Status read_exact(int fd, std::span<std::byte> out, const Until& until) noexcept;
[[nodiscard]] Status write_all(int fd, std::span<const std::byte> data, const Until& until) noexcept;
// The same, through TLS where the connection has it.
[[nodiscard]] Status read_exact(const Socket& socket, std::span<std::byte> out, const Until& until) noexcept;
[[nodiscard]] Status write_all(const Socket& socket, std::span<const std::byte> data,
                               const Until& until) noexcept;
// The TLS handshake on a connected socket, which has it from then on. kTimeout, kShutdown, or
// kUnauthenticated with the reason.
[[nodiscard]] Result<void> shake_hands(Socket& socket, const TlsContext& context, const TlsPeer& peer,
                                       const Until& until);

}  // namespace sluice::transport::tcp
