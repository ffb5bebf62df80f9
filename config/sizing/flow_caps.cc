#include "config/sizing/flow_caps.h"

namespace sluice::config {

FlowCap flow_cap_of(std::string_view provider, VmNetwork network) {
  if (network == VmNetwork::kInfiniBand) return {.gbps = 0, .words = "no cap over InfiniBand"};
  if (provider == "aws") {
    return {
        .gbps = 5,
        .words = "EC2: 5 Gbps a flow; --flow-gbps 10 within a cluster placement group, 25 with ENA Express"};
  }
  return {.gbps = 0, .words = "no cap per flow is known here; --flow-gbps sets one"};
}

}  // namespace sluice::config
