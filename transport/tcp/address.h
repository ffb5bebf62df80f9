// Name resolution, and texts of addresses and system errors, for connection setup and messages.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"

namespace sluice::transport::tcp {

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// Resolves `host` to stream addresses, in the order of the host's address selection policy; never empty.
// `flags` are AI_ flags. With AI_NUMERICHOST a text that is not an address is kInvalidArgument. Blocks as
// long as the host's resolver (resolv.conf: timeout, attempts); the C library offers no deadline.
[[nodiscard]] Result<AddressList> resolve(const std::string& host, uint16_t port, int family, int flags);

// "10.0.0.3:50112", "[::1]:7470". An IPv4 peer of a dual-stack socket is printed as IPv4.
[[nodiscard]] std::string address_text(const sockaddr_storage& address);
[[nodiscard]] std::string endpoint_text(const std::string& host, uint16_t port);

// The port that a socket is bound to.
[[nodiscard]] Result<uint16_t> bound_port(int fd);
// True for an IPv4 or IPv6 address, false for a name.
[[nodiscard]] bool is_numeric(const std::string& host) noexcept;
// The local address of a connected socket, without the port; empty if it has none.
[[nodiscard]] std::string local_host(int fd);
// The address of the peer of a connected socket, without the port, with the interface of a link-local one:
// another connection to the address reaches the same host. Empty if it has none.
[[nodiscard]] std::string peer_host(int fd);
// address_text() of the peer of a connected socket.
[[nodiscard]] std::string peer_name(int fd);
// True if the peer of a connected socket has an address of this host, in this network namespace.
[[nodiscard]] bool is_peer_on_this_host(int fd);

// The system's text for an errno value, with a lower-case first letter.
[[nodiscard]] std::string error_text(int number);

}  // namespace sluice::transport::tcp
