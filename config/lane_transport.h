// What lane connections may go over.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"

namespace sluice::config {

// kAuto: RDMA where both ends can, else TCP.
enum class LaneTransport : uint8_t { kAuto, kTcp, kRdma };

// "auto", "tcp", "rdma". kInvalidArgument names the value.
[[nodiscard]] Result<LaneTransport> parse_lane_transport(std::string_view text);

}  // namespace sluice::config
