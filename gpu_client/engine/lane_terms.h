// What a worker's lane connections go over (docs/rdma.md).
#pragma once

#include <string>

#include "core/result.h"
#include "gpu_client/engine/greeting.h"

namespace sluice::engine {

// From SLUICE_TRANSPORT: auto (nothing means that too), tcp, rdma; SLUICE_IB_HCA, SLUICE_IB_GID_INDEX,
// SLUICE_IB_TC. Looks for RDMA devices. kInvalidArgument, with the variable; kUnsupported where rdma is
// wanted and this machine has none.
[[nodiscard]] Result<LaneTerms> read_transport_variables();

// Behind ATTACHED on a lane connection: gives it a queue pair where both ends can have one. Else it goes on
// over TCP, and greeting.no_pair says why; kUnsupported where the terms want nothing but RDMA. Errors are as
// those of ask().
[[nodiscard]] Result<void> settle_transport(Greeting& greeting, const LaneTerms& terms, const Until& until);

}  // namespace sluice::engine
