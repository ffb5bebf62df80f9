#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "transport/rdma/device.h"
#include "transport/rdma/pairing.h"

namespace sluice::transport::rdma {

// LocalPath is the local end of RDMA connections: an active port of a device and one entry of its GID table.
struct LocalPath {
  std::shared_ptr<const Device> device;
  uint8_t port = 1;
  uint8_t gid_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  Gid gid{};
  std::string address;  // the GID as an IP address, "10.0.0.1"
};

// Returns all RoCE v2 paths that `choice` allows; at least one. kUnsupported with the reason.
[[nodiscard]] Result<std::vector<LocalPath>> find_local_paths(const RailChoice& choice);

// Returns the path whose GID is the local address of a TCP connection, so that RDMA uses the rail that TCP's
// routes selected. Searches open devices first. kUnsupported: no device has the address.
[[nodiscard]] Result<LocalPath> find_local_path(const Gid& local, const RailChoice& choice);

}  // namespace sluice::transport::rdma
