// Lists of interfaces and devices as NCCL_SOCKET_IFNAME and NCCL_IB_HCA have them.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sluice::config {

// True when `name` is in `list`: "eth,ens" prefixes, "=eth0" exact (for the whole list), "^docker" all but
// these, "^=lo". "mlx5_0:1": that port alone; without a `port` (0) what stands behind the colon means
// nothing.
[[nodiscard]] bool is_listed(std::string_view list, std::string_view name, unsigned port = 0);

// Whether a device's port is in `list`. An empty list is none, which is no filter: null.
[[nodiscard]] std::function<bool(std::string_view device, unsigned port)> port_filter(std::string list);

}  // namespace sluice::config
