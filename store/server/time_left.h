#pragma once

#include <algorithm>
#include <chrono>

#include "core/clock.h"

namespace sluice::store {

// The time until `deadline`, for a wait of a condition variable; 0 once it has passed.
inline std::chrono::nanoseconds time_left(Nanos deadline) {
  return std::chrono::nanoseconds(std::max<Nanos>(deadline - monotonic_now(), 0));
}

}  // namespace sluice::store
