// Names, addresses and their texts, for set-up and messages.
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

// Stream addresses of `host`, in the order in which the host's policy wants them tried; never empty. `flags`
// are AI_ flags; with AI_NUMERICHOST a text that is no address is kInvalidArgument. Blocks as long as the
// host's resolver does (resolv.conf: timeout, attempts): the C library offers no deadline.
[[nodiscard]] Result<AddressList> resolve(const std::string& host, uint16_t port, int family, int flags);

// "10.0.0.3:50112", "[::1]:7470"; an IPv4 peer of a dual-stack socket reads as IPv4.
[[nodiscard]] std::string address_text(const sockaddr_storage& address);
[[nodiscard]] std::string endpoint_text(const std::string& host, uint16_t port);

// The system's words for `number`, beginning in lower case.
[[nodiscard]] std::string error_text(int number);

}  // namespace sluice::transport::tcp
