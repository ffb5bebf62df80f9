// What this process offers to NCCL, decided once: nothing on this host, or on some other, may change the
// answer later, since NCCL 2.30 fails a job whose ranks count CollNet devices differently.
#pragma once

#include <string>
#include <vector>

#include "nccl_plugin/host/devices.h"

namespace sluice::nccl {

struct Offer {
  std::vector<Device> net;  // empty: NCCL keeps its own point-to-point transport, and then CollNet is off too
  std::vector<Device> collnet;  // empty, or equal to `net`
  std::string why;              // where either is empty: the reason, for people
  bool warning = false;         // the reason is one that the user will want to change
};

[[nodiscard]] const Offer& offer();
// One line, once: what is offered, or why not.
void tell_offer() noexcept;

}  // namespace sluice::nccl
