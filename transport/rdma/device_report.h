// What went by each RDMA device of this process, for who shows it. Names no verbs, and is there in a build
// without them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::transport::rdma {

// Since the device was opened.
struct DeviceReport {
  std::string device;  // "mlx5_0"
  uint64_t pairs_made = 0;
  uint64_t pairs_open = 0;
  uint64_t pairs_failed = 0;  // could not be made or joined, or nothing came through
  uint64_t registrations = 0;
  uint64_t registrations_failed = 0;
  uint64_t registered_bytes = 0;  // now
  uint64_t bytes_in = 0;          // a connection's newest MiB may be missing while it is busy
  uint64_t bytes_out = 0;
  uint64_t port_losses = 0;
  // "RETRY_EXC_ERR", as verbs have it after IBV_WC_, and how many connections ended so; none that are 0.
  std::vector<std::pair<std::string_view, uint64_t>> completion_errors{};
  uint64_t retries_exhausted = 0;  // of these: the peer, or the way to it, gave no answer
};

// Of those that are open and there. Looks at their events first. Any thread.
[[nodiscard]] std::vector<DeviceReport> device_reports();

}  // namespace sluice::transport::rdma
