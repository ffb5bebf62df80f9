// The monotonic clock. The outermost loop reads it once per iteration and passes the time down as a value. No
// lower code reads it again, so tests can supply any time.
#pragma once

#include "core/units.h"

namespace sluice {

// The current time of CLOCK_MONOTONIC. Any thread.
[[nodiscard]] Nanos monotonic_now() noexcept;

// The processor time that the calling thread has used.
[[nodiscard]] Nanos thread_cpu_now() noexcept;

}  // namespace sluice
