// The network interfaces the plugin offers: one table for net and CollNet, since NCCL merges the two by name
// and lets the first one's speed and pointer support stand for both.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::nccl {

struct Device {
  std::string name;      // "eth0"
  std::string pci_path;  // canonical path in /sys of the function, empty for virtual interfaces
  std::string address;  // numeric, without port or scope: "10.0.0.3", "fd00::3"; what listens and connects by
                        // this device binds to
  uint64_t guid = 0;    // index of the interface: unique on the host
  uint32_t speed_mbps = 10'000;
};

struct DeviceRules {
  std::string interfaces;   // as config/name_list.h has it; empty: all but loopback and docker*, and loopback
                            // when nothing else is there
  uint32_t speed_mbps = 0;  // 0: what /sys says, 10000 where it says nothing
  std::string sysfs = "/sys";  // for tests
};

// Interfaces that are up and have an IPv4 or global IPv6 address (IPv4 preferred), in the kernel's order, at
// most abi::kMaxDevices. The same on every call with the same host.
[[nodiscard]] std::vector<Device> find_devices(const DeviceRules& rules);

// An InfiniBand or RoCE port is active here: NCCL's own net is the better one while ours copies all it moves.
// Empty, or the device's name.
[[nodiscard]] std::string active_rdma_device(const std::string& sysfs);

}  // namespace sluice::nccl
