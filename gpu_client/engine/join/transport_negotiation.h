// Negotiation of the transport of one lane connection: RDMA, or TCP where RDMA is not possible.
#pragma once

#include "core/result.h"
#include "gpu_client/engine/join/handshake.h"

namespace sluice::engine {

// Called after ATTACHED on a lane connection. Attaches a queue pair to its socket when both ends have RDMA.
// Otherwise the connection uses TCP, and handshake.tcp_reason says why. Returns kUnsupported when the
// settings require RDMA, or an error of send_request().
[[nodiscard]] Result<void> negotiate_lane_transport(Handshake& handshake, const LaneSettings& settings,
                                                    const Deadline& deadline);

}  // namespace sluice::engine
