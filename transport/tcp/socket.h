// Blocking-style set-up of sockets for the cold path: resolve, connect, listen, exact reads and writes, all
// with deadlines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/result.h"
#include "core/units.h"

namespace sluice::transport::tcp {

// Owns a file descriptor.
class Socket {
 public:
  Socket() noexcept = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept;  // caller owns it now

 private:
  int fd_ = -1;
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

// "10.0.0.3:50112", "[::1]:7470".
[[nodiscard]] std::string peer_name(int fd);

// Exactly out.size() bytes, or kTimeout, kShutdown, kClosed (end of stream) or kReset. The fd is
// non-blocking.
[[nodiscard]] Status read_exact(int fd, std::span<std::byte> out, const Until& until) noexcept;
[[nodiscard]] Status write_all(int fd, std::span<const std::byte> data, const Until& until) noexcept;

}  // namespace sluice::transport::tcp
