// Matches interface and device names against lists in the syntax of NCCL_SOCKET_IFNAME and NCCL_IB_HCA.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sluice::config {

// Returns whether `list` selects `name`. "eth,ens" lists prefixes, "=eth0" lists exact names, and a leading
// "^" excludes what follows ("^docker", "^=lo"). "mlx5_0:1" selects that port only; with `port` 0 the text
// after the colon is ignored.
[[nodiscard]] bool is_listed(std::string_view list, std::string_view name, unsigned port = 0);

// Returns a predicate for device ports that `list` selects. An empty list returns null, which means no
// filter.
[[nodiscard]] std::function<bool(std::string_view device, unsigned port)> port_filter(std::string list);

}  // namespace sluice::config
