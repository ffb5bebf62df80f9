#pragma once

#include <exception>
#include <new>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/host/log.h"

namespace sluice::nccl::abi {

// Runs `body` for an entry point of NCCL. Converts exceptions to a result and logs them: an exception must
// not reach NCCL.
template <typename Body>
[[nodiscard]] Result guarded(const char* entry, Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    warn("%s: out of memory", entry);
    return kSystemError;
  } catch (const std::exception& e) {
    warn("%s: %s", entry, e.what());
    return kInternalError;
  } catch (...) {
    warn("%s: unknown exception", entry);
    return kInternalError;
  }
}

}  // namespace sluice::nccl::abi
