#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "transport/rdma/device_counters.h"
#include "transport/rdma/device_events.h"
#include "transport/rdma/verbs.h"

namespace sluice::transport::rdma {

// Device is an opened RDMA device, with its events and counters. All users of the process share one Device,
// because opening takes milliseconds and a session makes many connections. Any thread.
class Device {
 public:
  // Returns the open device of that name, or opens it. kUnsupported when no device has the name; kSystem.
  [[nodiscard]] static Result<std::shared_ptr<const Device>> open(const std::string& name);
  Device(const Verbs& verbs, std::string name, ibv_context* context)
      : verbs_(verbs), name_(std::move(name)), context_(context), events_(verbs, context, name_) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { verbs_.close_device(context_); }

  [[nodiscard]] const Verbs& verbs() const noexcept { return verbs_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }  // "mlx5_0"
  [[nodiscard]] ibv_context* context() const noexcept { return context_; }
  [[nodiscard]] DeviceEvents& events() const noexcept { return events_; }
  [[nodiscard]] DeviceCounters& counters() const noexcept { return counters_; }

 private:
  const Verbs& verbs_;
  const std::string name_;
  ibv_context* const context_;
  mutable DeviceEvents events_;
  mutable DeviceCounters counters_;
};

// Returns the devices that this process has open.
[[nodiscard]] std::vector<std::shared_ptr<const Device>> open_devices();

// Keeps the device open until the returned object is destroyed, or until poll_device_events() finds the
// device removed: a software driver cannot remove a device that a process has open.
[[nodiscard]] std::shared_ptr<const void> keep_open(std::shared_ptr<const Device> device);

}  // namespace sluice::transport::rdma
