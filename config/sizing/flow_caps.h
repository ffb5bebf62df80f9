// Knows the bandwidth limit of one TCP connection, where a provider limits it below the NIC's bandwidth.
#pragma once

#include <string>
#include <string_view>

#include "config/sizing/vm_catalog.h"

namespace sluice::config {

struct FlowCap {
  double gbps = 0;     // 0: no limit is known
  std::string source;  // the origin of the limit, for people
};

// EC2 limits one flow to 5 Gbit/s. The limit is 10 between VMs of one cluster placement group, and 25 over
// ENA Express within a zone (EC2 user guide, "Amazon EC2 instance network bandwidth"). Other providers
// publish no limit, and InfiniBand queue pairs have none.
[[nodiscard]] FlowCap flow_cap_of(std::string_view provider, VmNetwork network);

}  // namespace sluice::config
