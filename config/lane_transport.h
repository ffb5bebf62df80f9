// Names the transports that lane connections may use.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"

namespace sluice::config {

// kAuto selects RDMA when both ends support it, otherwise TCP.
enum class LaneTransport : uint8_t { kAuto, kTcp, kRdma };

// Accepts "auto", "tcp" and "rdma". Returns kInvalidArgument with the rejected value.
[[nodiscard]] Result<LaneTransport> parse_lane_transport(std::string_view text);

}  // namespace sluice::config
