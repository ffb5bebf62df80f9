// Options of TCP sockets: buffer sizes, congestion control and keepalive.
#pragma once

#include <cstddef>
#include <string>

#include "core/units.h"

namespace sluice::transport::tcp {

struct SocketOptions {
  // SO_SNDBUF and SO_RCVBUF; 0 leaves the kernel's autotuning alone. Set before connect or listen, and only
  // if the host's limits (net.core.[rw]mem_max) allow the whole size.
  size_t buffer_bytes = 4 * kMiB;
  std::string congestion_control;  // TCP_CONGESTION; empty means the host's default
  std::string local_address;       // source address to bind before connecting; empty means the route's
};

// The options that the kernel accepted, for `check` and logs.
struct AppliedOptions {
  bool buffers_set = false;
  bool congestion_control_set = true;  // true also when no algorithm was requested
  std::string note;                    // why an option was not applied; empty if all were
};

// Applies buffer sizes and congestion control to an unconnected socket. A refused option is only a note.
AppliedOptions apply_options(int fd, const SocketOptions& options);

// setsockopt() with an int. False on error, with errno.
bool set_option(int fd, int level, int option, int value) noexcept;

// Makes the kernel probe a peer that is idle for `idle_s`, each `interval_s`
// (docs/reference/configuration.md, keepalive).
void enable_keepalive(int fd, int idle_s = 60, int interval_s = 10) noexcept;

}  // namespace sluice::transport::tcp
