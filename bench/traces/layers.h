// Struct Layer describes a layer of a network: its gradient tensors and its computation cost. A multiply-add
// counts as two floating point operations. Normalizations, activations, softmax and look-ups count as none,
// because they are about 1 % of the operations of these networks. Their share of the time is larger, because
// memory bandwidth limits them; the model ignores that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace sluice::bench
