// Reads, writes, waits and TLS handshakes that block until a deadline, on non-blocking sockets. For
// connection setup only; the data path never blocks.
#pragma once

#include <cstddef>
#include <span>

#include "core/result.h"
#include "core/units.h"
#include "transport/tcp/secure_stream.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::tcp {

// The limit of a blocking call: a time of the monotonic clock and, optionally, a descriptor of the caller
// (for example an eventfd). When that descriptor becomes readable, the call ends with kShutdown.
struct Deadline {
  // NOLINTNEXTLINE(google-explicit-constructor): most callers have a time only
  constexpr Deadline(Nanos at, int fd = -1) noexcept : time(at), interrupt_fd(fd) {}
  Nanos time;
  int interrupt_fd;
};

// Waits until poll(2) reports `events`, or an error, which the next call reports. kTimeout, kShutdown.
[[nodiscard]] Status wait_ready(int fd, short events, const Deadline& until) noexcept;
// Waits for nothing else than the limit. kTimeout, kShutdown.
[[nodiscard]] inline Status sleep_until(const Deadline& until) noexcept {
  return wait_ready(-1, 0, until);
}

// Reads exactly out.size() bytes, or writes all of `data`, through TLS if the connection has it. kTimeout,
// kShutdown, kClosed (at the end), kReset.
[[nodiscard]] Status read_exact(const Socket& socket, std::span<std::byte> out,
                                const Deadline& until) noexcept;
[[nodiscard]] Status write_all(const Socket& socket, std::span<const std::byte> data,
                               const Deadline& until) noexcept;

// Runs the TLS handshake on a connected socket and attaches the stream. kTimeout, kShutdown,
// kUnauthenticated; kReset: the peer has ended.
[[nodiscard]] Result<void> tls_handshake(Socket& socket, const TlsContext& context, const TlsPeer& peer,
                                         const Deadline& until);

}  // namespace sluice::transport::tcp
