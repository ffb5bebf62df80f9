// Starts the server of a bare TCP star on loopback for one run, like LocalPool starts reducers.
#pragma once

#include <cstdint>

#include "bench/e2e/process/process_group.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::bench {

struct LocalStar {
  size_t child = 0;  // index in the ProcessGroup; serves until it is stopped
  uint16_t port = 0;
};

// Returns when the server listens. `spin`: see StarServerOptions::spin.
[[nodiscard]] Result<LocalStar> start_star(ProcessGroup& processes, Nanos spin);

}  // namespace sluice::bench
