// agree_hosts() makes all ranks of a session agree on which of them share a host. It uses GATHER at the
// dedicated reducer with the least id, or without one at rank 0's (protocol.md section 5, round 0).
#pragma once

#include <vector>

#include "core/result.h"
#include "gpu_client/engine/join/join.h"
#include "gpu_client/local/topology.h"

namespace sluice::local {

// Blocks until all ranks have called it, with the join timeout. Returns a topology in which each rank is a
// host of its own where a reducer is of a release without GATHER. Errors: those of the handshakes, of GATHER,
// and kMismatch for ranks of different machines with the same SLUICE_HOST_ID, with both addresses.
[[nodiscard]] Result<Topology> agree_hosts(const engine::JoinOptions& options);

}  // namespace sluice::local
