// Struct StreamOperation tracks one operation of the caller on a stream, or one group of operations, until
// its end.
#pragma once

#include <cstdint>
#include <memory>

#include "core/status.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::pipeline {

// The stream pump's mutex protects all members but `done`.
struct StreamOperation {
  uint64_t caller_operations = 1;  // operations of the caller that it contains
  // Network operations that have not completed, plus one while the work is being enqueued.
  uint64_t unfinished = 1;
  Errc status = Errc::kOk;  // the first failure
  // Complete when the results are in the caller's buffers. Null when the caller has no request. Constant once
  // set.
  std::unique_ptr<Event> done;

  [[nodiscard]] bool is_finished() const noexcept { return unfinished == 0; }
};

}  // namespace sluice::pipeline
