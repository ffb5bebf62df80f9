// When the gradients of a step are ready.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/traces/model.h"
#include "core/units.h"

namespace sluice::bench {

struct Gradient {
  std::string name;
  uint64_t elements = 0;
  Nanos ready = 0;  // from the begin of the step
};

// In order of readiness: layers backwards. A step is a forward and a backward pass
// and takes `step`, shared among layers by their floating point operations: nothing is ready before the
// forward pass is over, and the last gradients are at `step`.
[[nodiscard]] std::vector<Gradient> gradients_of(const Model& model, Nanos step);

}  // namespace sluice::bench
