// The rate of the network link behind a local address, as the kernel reports it for the interface.
//
// Not for the data path: reads sysfs. All functions may run on any thread.
#pragma once

#include <ifaddrs.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace sluice::transport::tcp {

// Bits/s in each direction of interface `name`; 0: unknown. The rate of loopback and of other interfaces
// without a device of their own is unknown, because their drivers report a constant: veth 10 Gbit/s, tun 10
// Mbit/s. Bonds and VLANs count, bridges do not. `sys` is the mount point of sysfs.
[[nodiscard]] uint64_t interface_rate(const std::string& name, const std::string& sys = "/sys");

// The rate of the interface with the address `local`. For a wildcard address, that of the only interface that
// has an address and whose link is no virtual one; 0 if there are several.
[[nodiscard]] uint64_t link_rate(const sockaddr_storage& local);
// The same with the host's interfaces from getifaddrs().
[[nodiscard]] uint64_t link_rate(const sockaddr_storage& local, const ifaddrs* interfaces,
                                 const std::string& sys);

}  // namespace sluice::transport::tcp
