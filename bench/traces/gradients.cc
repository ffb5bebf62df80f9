#include "bench/traces/gradients.h"

#include <cmath>

namespace sluice::bench {

std::vector<Gradient> gradients_of(const Model& model, Nanos step) {
  const double total = model.forward_flops() + model.backward_flops();
  double done = model.forward_flops();
  std::vector<Gradient> gradients;
  for (auto layer = model.layers.rbegin(); layer != model.layers.rend(); ++layer) {
    if (layer->frozen) continue;
    done += 2 * layer->forward_flops;
    const Nanos ready = std::llround(static_cast<double>(step) * (done / total));
    for (const Tensor& tensor : layer->tensors)
      gradients.push_back({.name = tensor.name, .elements = tensor.elements, .ready = ready});
  }
  return gradients;
}

}  // namespace sluice::bench
