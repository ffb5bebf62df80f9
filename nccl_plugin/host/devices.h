// The network interfaces that the plugin offers. Net and CollNet share one table, because NCCL merges their
// devices by name and uses the speed and pointer support of the first for both.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::nccl {

struct Device {
  std::string name;      // "eth0"
  std::string pci_path;  // canonical path of the PCI function in /sys; empty for virtual interfaces
  // Numeric, without port or scope: "10.0.0.3", "fd00::3". Sockets of this device bind to it.
  std::string address;
  uint64_t guid = 0;  // index of the interface, unique on the host
  uint32_t speed_mbps = 10'000;
};

struct DeviceOptions {
  // A list as in config/name_list.h. Empty: all interfaces but loopback and docker*, or loopback if it is the
  // only one.
  std::string interfaces;
  uint32_t speed_mbps = 0;     // 0: the speed in /sys, or 10000 if /sys has none
  std::string sysfs = "/sys";  // for tests
};

// Returns the interfaces that are up and have an IPv4 or global IPv6 address (IPv4 preferred), in the
// kernel's order, at most abi::kMaxDevices. The result depends on the state of the host only.
[[nodiscard]] std::vector<Device> find_devices(const DeviceOptions& options);

// Returns the name of an RDMA device with an active port, or an empty string. On such a host NCCL's own
// network is faster, because this plugin copies all point-to-point data.
[[nodiscard]] std::string active_rdma_device(const std::string& sysfs);

}  // namespace sluice::nccl
