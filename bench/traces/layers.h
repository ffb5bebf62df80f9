// Layers of networks, as far as their gradients go: how many there are and what they cost to compute.
// A multiply-add counts as two floating point operations. Normalisations, activations, softmax and look-ups
// count as none: they are about a hundredth of the operations of these networks. They take more of the time,
// since memory bounds them, and that is not modelled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::bench {

struct Tensor {
  std::string name;
  uint64_t elements = 0;
};

// A piece of the forward pass. In the backward pass the gradients of all its tensors are ready at its end.
struct Layer {
  std::string name;
  double forward_flops = 0;     // for one sample
  std::vector<Tensor> tensors;  // in the order in which PyTorch hands out gradients; none: arithmetic alone
  bool frozen = false;          // not trained: no gradient, and no backward pass
};

// `positions`: how often the kernel is applied to one sample.
struct Convolution {
  uint64_t in;
  uint64_t out;
  uint64_t kernel;  // kernel x kernel
  uint64_t positions;
  bool bias = false;
};
[[nodiscard]] Layer convolution(const std::string& name, const Convolution& shape);

// `rows`: vectors of one sample that it is applied to.
struct Linear {
  uint64_t in;
  uint64_t out;
  uint64_t rows;
  bool bias = true;
};
[[nodiscard]] Layer linear(const std::string& name, const Linear& shape);

// Scale and, with `bias`, shift, of each of `width` features.
[[nodiscard]] Layer normalisation(const std::string& name, uint64_t width, bool bias = true);

// A table of `rows` vectors. Its gradient is dense, as frameworks send it by default.
[[nodiscard]] Layer embedding(const std::string& name, uint64_t rows, uint64_t width);

// Scores of every token with every other, and the weighted sum, over all heads together. A causal mask saves
// nothing here.
[[nodiscard]] Layer attention(const std::string& name, uint64_t tokens, uint64_t width);

}  // namespace sluice::bench
