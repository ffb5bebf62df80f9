// Maps the engine's error codes, and exceptions, to the statuses of the C API.
#pragma once

#include <new>
#include <utility>

#include "core/status.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

[[nodiscard]] sluice_status to_status(Errc code) noexcept;

// Returns the result of `body`; SLUICE_SYSTEM if it ran out of memory, SLUICE_INTERNAL after any other
// exception.
template <typename Body>
sluice_status catch_exceptions(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return SLUICE_SYSTEM;
  } catch (...) {
    return SLUICE_INTERNAL;
  }
}

}  // namespace sluice::api
