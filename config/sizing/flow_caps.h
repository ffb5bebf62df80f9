// What one TCP connection can carry, where a provider says that it is less than the NIC.
#pragma once

#include <string>
#include <string_view>

#include "config/sizing/vm_catalogue.h"

namespace sluice::config {

struct FlowCap {
  double gbps = 0;    // 0: no cap is known
  std::string words;  // where it comes from, for people
};

// EC2 holds one flow to 5 Gbit/s, to 10 between VMs of one cluster placement group, to 25 over ENA Express
// within a zone (EC2 user guide, "Amazon EC2 instance network bandwidth"). No published figure is known for
// the others; queue pairs over InfiniBand are under no such cap.
[[nodiscard]] FlowCap flow_cap_of(std::string_view provider, VmNetwork network);

}  // namespace sluice::config
