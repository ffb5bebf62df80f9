#pragma once

#include <string>
#include <vector>

#include "nccl_plugin/host/devices.h"
#include "nccl_plugin/host/off_reason.h"

namespace sluice::nccl {

// Capabilities are what this process offers to NCCL.
struct Capabilities {
  std::vector<Device> net;      // empty: NCCL uses its own point-to-point network, and CollNet is off too
  std::vector<Device> collnet;  // empty, or equal to `net`
  std::string reason;           // why one of the lists is empty
  OffReason off_reason = OffReason::kNone;  // the same
  bool is_warning = false;                  // the user probably wants to change the reason
};

// Decides the capabilities at the first call. They never change later, and do not depend on the network or on
// other hosts: NCCL 2.30 fails a job whose ranks report different numbers of CollNet devices.
[[nodiscard]] const Capabilities& capabilities();
// Logs the capabilities, or the reason for missing ones. Once per process.
void log_capabilities() noexcept;

}  // namespace sluice::nccl
