#include "config/lane_transport.h"

#include <string>

namespace sluice::config {

Result<LaneTransport> parse_lane_transport(std::string_view text) {
  if (text == "auto") return LaneTransport::kAuto;
  if (text == "tcp") return LaneTransport::kTcp;
  if (text == "rdma") return LaneTransport::kRdma;
  return invalid("unknown transport \"" + std::string(text) + "\"; expected auto, tcp or rdma");
}

}  // namespace sluice::config
