// No exception leaves the C face.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

// What `body` returns; SLUICE_SYSTEM when there was no memory, SLUICE_INTERNAL for any other exception.
template <typename Body>
sluice_status guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return SLUICE_SYSTEM;
  } catch (...) {
    return SLUICE_INTERNAL;
  }
}

}  // namespace sluice::api
