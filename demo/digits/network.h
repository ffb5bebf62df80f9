// Class Network is a perceptron with one hidden layer of ReLUs and a softmax, in f32. The order of operations
// is fixed, and the code is compiled without contraction and fast-math. So the same weights and images have
// the same bits on a machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "demo/digits/dataset.h"

namespace sluice::demo {

// Sums over images. All are floats, so that they fit in the buffer of the gradient; counts below 2^24 are
// exact.
struct Score {
  float loss = 0;     // cross-entropy, nats
  float correct = 0;  // images whose most likely class is the label
};

class Network {
 public:
  // Initializes weights uniformly in +-sqrt(6 / inputs) (He et al. 2015) and biases with 0, depending on
  // `seed` only.
  Network(size_t hidden, uint64_t seed);

  // Returns all parameters: weights of layer 1 [pixel][unit], its biases, weights of layer 2 [unit][class],
  // its biases.
  [[nodiscard]] std::span<float> parameters() noexcept { return parameters_; }
  [[nodiscard]] std::span<const float> parameters() const noexcept { return parameters_; }

  // Adds the gradient of the summed loss of the images to `gradient`, which has the size of parameters().
  // Returns the score of the images.
  Score add_gradient(const Dataset& data, std::span<const uint32_t> images, std::span<float> gradient);
  [[nodiscard]] Score evaluate(const Dataset& data);

 private:
  // Sets hidden_out_ and probability_, and adds to `score`.
  void forward(std::span<const float> image, uint8_t label, Score& score);

  size_t hidden_;
  std::vector<float> parameters_;
  std::vector<float> hidden_out_;
  std::vector<float> hidden_slope_;
  std::vector<float> probability_;
};

// Class Random is the random number generator of the demo: splitmix64 (Steele, Lea, Flood 2014). The numbers
// are the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept;
  float uniform() noexcept { return static_cast<float>(next() >> 40) * 0x1p-24F; }  // [0, 1)
  size_t below(size_t n) noexcept { return static_cast<size_t>(next() % n); }

 private:
  uint64_t state_;
};

}  // namespace sluice::demo
