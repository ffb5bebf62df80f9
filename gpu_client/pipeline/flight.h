// An operation, or a group of them, from its call to its end.
#pragma once

#include <cstdint>
#include <memory>

#include "core/status.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::pipeline {

// Under the courier's mutex, but what is said.
struct Flight {
  uint64_t operations = 1;      // that the caller made of it
  uint64_t parcels_left = 1;    // on the network or ahead of it; one more while it is being given
  Errc status = Errc::kOk;      // the first of its parcels to fail
  std::unique_ptr<Event> done;  // results are in place; nothing: nobody asks. Constant once given

  [[nodiscard]] bool landed() const noexcept { return parcels_left == 0; }
};

}  // namespace sluice::pipeline
