// Converts exceptions to sluice_status at the C API boundary.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

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
