// The clock is read once per turn at the outermost loop and handed down as a value; nothing below reads it
// again, so tests hand in any time they like.
#pragma once

#include "core/units.h"

namespace sluice {

// CLOCK_MONOTONIC now. Any thread.
[[nodiscard]] Nanos monotonic_now() noexcept;

}  // namespace sluice
