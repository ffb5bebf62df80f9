#include "bench/traces/layers.h"

namespace sluice::bench {
namespace {

Tensor weight_of(const std::string& layer, uint64_t elements) {
  return {.name = layer + ".weight", .elements = elements};
}

Tensor bias_of(const std::string& layer, uint64_t elements) {
  return {.name = layer + ".bias", .elements = elements};
}

// Returns the operations of a layer that uses each weight `times` times.
double flops_of(uint64_t weights, uint64_t times) {
  return 2.0 * static_cast<double>(weights) * static_cast<double>(times);
}

}  // namespace

Layer convolution(const std::string& name, const Convolution& shape) {
  const uint64_t weights = shape.in * shape.out * shape.kernel * shape.kernel;
  Layer layer{.name = name,
              .forward_flops = flops_of(weights, shape.positions),
              .tensors = {weight_of(name, weights)}};
  if (shape.bias) layer.tensors.push_back(bias_of(name, shape.out));
  return layer;
}

Layer linear(const std::string& name, const Linear& shape) {
  const uint64_t weights = shape.in * shape.out;
  Layer layer{.name = name, .forward_flops = flops_of(weights, shape.rows), .tensors = {}};
  if (shape.bias) layer.tensors.push_back(bias_of(name, shape.out));
  layer.tensors.push_back(weight_of(name, weights));
  return layer;
}

Layer normalization(const std::string& name, uint64_t width, bool bias) {
  Layer layer{.name = name, .forward_flops = 0, .tensors = {weight_of(name, width)}};
  if (bias) layer.tensors.push_back(bias_of(name, width));
  return layer;
}

Layer embedding(const std::string& name, uint64_t rows, uint64_t width) {
  return {.name = name, .forward_flops = 0, .tensors = {weight_of(name, rows * width)}};
}

Layer attention(const std::string& name, uint64_t tokens, uint64_t width) {
  return {.name = name, .forward_flops = 2 * flops_of(width * tokens, tokens), .tensors = {}};
}

}  // namespace sluice::bench
