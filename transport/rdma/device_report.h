// Statistics of this process's RDMA devices. Does not include verbs.h; also for a build without verbs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::transport::rdma {

// Totals since the device was opened.
struct DeviceReport {
  std::string device;  // "mlx5_0"
  uint64_t pairs_made = 0;
  uint64_t pairs_open = 0;
  uint64_t pairs_failed = 0;  // could not be created or connected, or failed the probe
  uint64_t registrations = 0;
  uint64_t registrations_failed = 0;
  uint64_t registered_bytes = 0;  // at present
  uint64_t bytes_in = 0;          // may lack up to 1 MiB of each busy connection
  uint64_t bytes_out = 0;
  uint64_t port_losses = 0;  // times that a port went down
  // The name of the status without IBV_WC_ ("RETRY_EXC_ERR"), and the number of connections that it ended.
  // Only statuses that occurred.
  std::vector<std::pair<std::string_view, uint64_t>> completion_errors{};
  uint64_t retries_exhausted = 0;  // the completion errors that mean: the peer or its network did not respond
};

// Returns the statistics of all open devices that were not removed. Polls their events first. Any thread.
[[nodiscard]] std::vector<DeviceReport> device_reports();

}  // namespace sluice::transport::rdma
