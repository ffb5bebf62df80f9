// The network interface that a run's bytes leave by. Asked of the kernel by system calls, not of /sys: inside
// a network namespace that may still show another one's interfaces.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace sluice::bench {

struct NicFacts {
  std::string name;         // "eth0"; the loopback when the peer is this host
  std::string driver;       // "virtio_net"; empty: it has none
  uint64_t speed_mbit = 0;  // of the link; 0: the driver does not know
  int mtu = 0;              // bytes
};

// The interface of the route to `host`, a name or an address, from `local_address` (empty: the route's own).
// Sends nothing. Errors: the name has no address, no route, no such local address.
[[nodiscard]] Result<NicFacts> nic_towards(const std::string& host, const std::string& local_address);

}  // namespace sluice::bench
