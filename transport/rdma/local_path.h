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
  ibv_gid gid{};
  std::string address;  // the GID as an IP address, "10.0.0.1"
};

// Returns all RoCE v2 paths that `choice` allows; at least one. kUnsupported with the reason when there is
// none.
[[nodiscard]] Result<std::vector<LocalPath>> find_local_paths(const RailChoice& choice);

// Returns the path whose GID is the local address of a TCP connection, so that RDMA uses the rail that TCP's
// routes selected. Searches open devices first. kUnsupported when no device has the address, or as
// find_local_paths().
[[nodiscard]] Result<LocalPath> find_local_path(const ibv_gid& local, const RailChoice& choice);

// The local and the peer address of a TCP connection, as GIDs. kReset when the connection has no address any
// more.
[[nodiscard]] Result<ibv_gid> local_gid_of(int connection);
[[nodiscard]] Result<ibv_gid> peer_gid_of(int connection);

}  // namespace sluice::transport::rdma
