// Which device a connection leaves by, and that device opened.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "transport/rdma/device_counts.h"
#include "transport/rdma/device_events.h"
#include "transport/rdma/pairing.h"
#include "transport/rdma/verbs.h"

namespace sluice::transport::rdma {

// Opened once for all who hold it. Any thread.
class Device {
 public:
  [[nodiscard]] static Result<std::shared_ptr<const Device>> open(const std::string& name);
  Device(const Verbs& calls, std::string name, ibv_context* context)
      : calls_(calls), name_(std::move(name)), context_(context), events_(calls, context, name_) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  [[nodiscard]] const Verbs& calls() const noexcept { return calls_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }  // "mlx5_0"
  [[nodiscard]] ibv_context* context() const noexcept { return context_; }
  [[nodiscard]] DeviceEvents& events() const noexcept { return events_; }
  [[nodiscard]] DeviceCounts& counts() const noexcept { return counts_; }

 private:
  const Verbs& calls_;
  const std::string name_;
  ibv_context* const context_;
  mutable DeviceEvents events_;
  mutable DeviceCounts counts_;
};

// One way out of this machine: an entry of the address table of a port that is up.
struct Path {
  std::shared_ptr<const Device> device;
  uint8_t port = 1;
  uint8_t gid_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  ibv_gid gid{};
  std::string address;  // the gid as an IP address, "10.0.0.1"
};

// All of RoCE v2 that may be used, never none. kUnsupported: with why the machine has none.
[[nodiscard]] Result<std::vector<Path>> paths(const RailChoice& choice);

// The one with the address that a TCP connection has at our end: rails are told apart as the routes of TCP
// are. Looks at devices that are open first. kUnsupported: no device has that address, or as paths().
[[nodiscard]] Result<Path> path_of(const ibv_gid& ours, const RailChoice& choice);

// Open until this ends, or the device is gone and look_at_devices() has seen it: some drivers wait with a
// removal for all who have the device open.
[[nodiscard]] std::shared_ptr<const void> keep_open(std::shared_ptr<const Device> device);

// The addresses that a TCP connection has at its ends, as gids have them.
[[nodiscard]] Result<ibv_gid> gid_of_own_end(int connection);
[[nodiscard]] Result<ibv_gid> gid_of_peer(int connection);

}  // namespace sluice::transport::rdma
