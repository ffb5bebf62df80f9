// Struct NicFacts describes the network interface of a run. The data comes from system calls: in a network
// namespace, /sys may show the interfaces of another namespace.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace sluice::bench {

struct NicFacts {
  std::string name;         // "eth0"; the loopback interface when the peer is this host
  std::string driver;       // "virtio_net"; empty: no driver
  uint64_t speed_mbit = 0;  // of the link; 0: unknown
  int mtu = 0;              // bytes
};

// Returns the interface of the route to `host`, a name or an address. `local_address` sets the source
// address; empty: the default of the route. Sends no packets. Errors: the name does not resolve, no route, no
// such local address.
[[nodiscard]] Result<NicFacts> find_nic_to_peer(const std::string& host, const std::string& local_address);

}  // namespace sluice::bench
