#include "bench/traces/model.h"

#include <cmath>
#include <utility>

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

template <typename T, typename Value>
T sum_over(const std::vector<Layer>& layers, bool with_frozen, Value value) {
  T sum{};
  for (const Layer& layer : layers) {
    if (with_frozen || !layer.frozen) sum += value(layer);
  }
  return sum;
}

uint64_t elements_of(const Layer& layer) {
  uint64_t elements = 0;
  for (const Tensor& tensor : layer.tensors) elements += tensor.elements;
  return elements;
}

double forward_flops_of(const Layer& layer) {
  return layer.forward_flops;
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

uint64_t Model::parameters() const {
  return sum_over<uint64_t>(layers, true, elements_of);
}

uint64_t Model::gradient_elements() const {
  return sum_over<uint64_t>(layers, false, elements_of);
}

size_t Model::gradient_tensors() const {
  return sum_over<size_t>(layers, false, [](const Layer& layer) { return layer.tensors.size(); });
}

double Model::forward_flops() const {
  return sum_over<double>(layers, true, forward_flops_of);
}

double Model::backward_flops() const {
  return 2 * sum_over<double>(layers, false, forward_flops_of);
}

Nanos assumed_step_time(const Model& model) {
  const double flops = model.batch * (model.forward_flops() + model.backward_flops());
  return std::llround(1e3 * flops / kAssumedFlopsPerSecond) * kMillisecond;
}

std::vector<Model> all_models() {
  std::vector<Model> models;
  for (Model (*make)() : {resnet50, mask_rcnn_r50_fpn, bert_large, gpt2_medium, llama_7b})
    models.push_back(make());
  return models;
}

Result<Model> find_model(std::string_view name) {
  std::string known;
  for (Model& model : all_models()) {
    if (model.name == name) return std::move(model);
    known += (known.empty() ? "" : ", ") + model.name;
  }
  return fail(Errc::kInvalidArgument, "unknown model \"" + std::string(name) + "\"; the models are " + known);
}

}  // namespace sluice::bench
