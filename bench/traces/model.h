// Struct Model describes a network whose training is replayed, as layers with their gradient tensors and
// their computation cost. The models follow the published architectures. A multiply-add counts as two
// floating point operations. Normalizations, activations, softmax and look-ups count as none, because they
// are about 1 % of the operations of these networks. Their share of the time is larger, because memory
// bandwidth limits them; the model ignores that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace sluice::bench {

struct Tensor {
  std::string name;
  uint64_t elements = 0;
};

// A part of the forward pass. In the backward pass all its gradients are ready when the layer is complete.
struct Layer {
  std::string name;
  double forward_flops = 0;     // per sample
  std::vector<Tensor> tensors;  // in the gradient order of PyTorch; empty for layers without parameters
  bool frozen = false;          // not trained: no gradient and no backward pass
};

// `positions`: number of applications of the kernel per sample.
struct Convolution {
  uint64_t in;
  uint64_t out;
  uint64_t kernel;  // kernel x kernel
  uint64_t positions;
  bool bias = false;
};
[[nodiscard]] Layer convolution(const std::string& name, const Convolution& shape);

// `rows`: number of input vectors per sample.
struct Linear {
  uint64_t in;
  uint64_t out;
  uint64_t rows;
  bool bias = true;
};
[[nodiscard]] Layer linear(const std::string& name, const Linear& shape);

// A scale and, with `bias`, a shift for each of `width` features.
[[nodiscard]] Layer normalization(const std::string& name, uint64_t width, bool bias = true);

// A table of `rows` vectors. The gradient is dense, which is the default of frameworks.
[[nodiscard]] Layer embedding(const std::string& name, uint64_t rows, uint64_t width);

// The scores of all pairs of tokens and the weighted sum, over all heads. The model ignores savings by a
// causal mask.
[[nodiscard]] Layer attention(const std::string& name, uint64_t tokens, uint64_t width);

struct Model {
  std::string name;
  std::string source;         // publication of the architecture
  std::string sample;         // description of a sample, for example "image of 224 x 224"
  std::string heads;          // heads of the network, and excluded parts
  uint32_t batch = 1;         // samples per worker and step, an assumption
  std::vector<Layer> layers;  // in order of the forward pass

  [[nodiscard]] uint64_t parameters() const;         // as published, including frozen layers
  [[nodiscard]] uint64_t gradient_elements() const;  // without frozen layers
  [[nodiscard]] size_t gradient_tensors() const;
  // Per sample. The backward pass of a trained layer costs twice its forward pass: one derivative with
  // respect to the input and one with respect to the weights.
  [[nodiscard]] double forward_flops() const;
  [[nodiscard]] double backward_flops() const;
};

// The assumed rate of an accelerator when the user does not state the time of a step. Not a measurement: the
// order of magnitude of a data center GPU of 2020 with 16-bit matrix units.
inline constexpr double kAssumedFlopsPerSecond = 60e12;

// Returns the time of the forward and backward pass of one batch at that rate, in whole milliseconds.
[[nodiscard]] Nanos assumed_step_time(const Model& model);

[[nodiscard]] Model resnet50();
[[nodiscard]] Model mask_rcnn_r50_fpn();
[[nodiscard]] Model bert_large();
[[nodiscard]] Model gpt2_medium();
[[nodiscard]] Model llama_7b();

[[nodiscard]] std::vector<Model> all_models();
// Errors: kInvalidArgument; the text lists the known models.
[[nodiscard]] Result<Model> find_model(std::string_view name);

}  // namespace sluice::bench
