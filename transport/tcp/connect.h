// Opens TCP connections and listening sockets.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <string>

#include "core/result.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/socket_options.h"

namespace sluice::transport::tcp {

// Resolves `host` (a name, or an IPv4 or IPv6 literal without brackets) and tries each address until one
// accepts or the deadline passes. Returns a non-blocking socket with TCP_NODELAY. The error text names host,
// port and cause; with several addresses the cause is that of the last one.
//   kInvalidArgument: cannot bind the local address; a retry is useless.
//   kReset: the host answers, but no process listens on the port.
//   kTimeout, kShutdown, kSystem.
// The interrupt of the deadline does not end name resolution.
[[nodiscard]] Result<Socket> connect_to(const std::string& host, uint16_t port, const SocketOptions& options,
                                        const Deadline& until);

// Connects to one address, as connect_to() does. The error text is the cause.
[[nodiscard]] Result<Socket> connect_one(const addrinfo& to, const SocketOptions& options,
                                         const Deadline& until);

// Binds and listens. With port 0 the kernel chooses the port, which bound_port() returns. An empty host means
// all addresses, IPv6 and IPv4. A port in use is kAddressInUse.
// `applied`, if given, receives the result of the options even when listening fails.
[[nodiscard]] Result<Socket> listen_on(const std::string& host, uint16_t port, const SocketOptions& options,
                                       int backlog = 1024, AppliedOptions* applied = nullptr);

}  // namespace sluice::transport::tcp
