#include "config/sizing/flow_caps.h"

namespace sluice::config {

FlowCap flow_cap_of(std::string_view provider, VmNetwork network) {
  if (network == VmNetwork::kInfiniBand) return {.gbps = 0, .source = "no limit over InfiniBand"};
  if (provider == "aws") {
    return {
        .gbps = 5,
        .source =
            "EC2: 5 Gbps per flow; set --flow-gbps 10 within a cluster placement group, 25 with ENA Express"};
  }
  return {.gbps = 0, .source = "no limit per flow is known; set --flow-gbps for one"};
}

}  // namespace sluice::config
