// Struct Gradient states the size of a gradient and the time at which it is ready within a step.
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
  Nanos ready = 0;  // time since the start of the step
};

// Returns the gradients in the order in which they are ready: from the last layer to the first. A step has a
// forward and a backward pass and takes the time `step`. The time is divided among the layers by their
// floating point operations. No gradient is ready before the end of the forward pass; the last gradients are
// ready at `step`.
[[nodiscard]] std::vector<Gradient> gradients_of(const Model& model, Nanos step);

}  // namespace sluice::bench
