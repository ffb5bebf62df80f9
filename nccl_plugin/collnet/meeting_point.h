// The co-located reducer of the coordinator, at which the nodes of a communicator without dedicated reducers
// meet (protocol.md section 14). It starts before the nodes join, on the coordinator's address and a port
// that the system chooses, and the coordinator announces the port with the decision of the first round.
//
// Threads: that of connect_session(). Errors: kBadField for an announcement that is no port; those of
// colocated::local_reducer_factory().
#pragma once

#include <string>

#include "core/result.h"
#include "gpu_client/engine/join/join.h"

namespace sluice::nccl::collnet {

// At the coordinator: starts the reducer on `address`, and changes `join` so that the session uses it.
// Sets the announcement.
[[nodiscard]] Result<void> open_meeting_point(engine::JoinOptions& join, const std::string& address,
                                              std::string& announcement);

// At every node: makes the session of `join` meet at `address` and the announced port.
[[nodiscard]] Result<void> set_meeting_point(engine::JoinOptions& join, const std::string& address,
                                             const std::string& announcement);

}  // namespace sluice::nccl::collnet
