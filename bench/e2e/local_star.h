// A bare TCP star on loopback for one run, as LocalPool has reducers.
#pragma once

#include <cstdint>

#include "bench/e2e/process_group.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::bench {

struct LocalStar {
  size_t child = 0;  // serves until it is ended
  uint16_t port = 0;
};

// Returns when it listens. `spin` as StarServerOptions::spin.
[[nodiscard]] Result<LocalStar> start_star(ProcessGroup& processes, Nanos spin);

}  // namespace sluice::bench
