// A perceptron with one hidden layer of ReLUs and a softmax, in plain loops: f32, one order of operations, so
// the same weights, images and machine give the same bits. Compiled without contraction and fast-math, as
// everything here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "demo/digits/dataset.h"

namespace sluice::demo {

// Sums over images; all floats, so that they can ride in the same buffer as the gradient (counts below 2^24
// are exact).
struct Score {
  float loss = 0;     // cross-entropy, nats
  float correct = 0;  // images whose likeliest class is the right one
};

class Network {
 public:
  // Weights uniform in +-sqrt(6 / inputs) (He et al. 2015), biases 0; the same for the same seed.
  Network(size_t hidden, uint64_t seed);

  // All parameters in one row: weights of layer 1 [pixel][unit], its biases, weights of layer 2
  // [unit][class], its biases.
  [[nodiscard]] std::span<float> parameters() noexcept { return parameters_; }
  [[nodiscard]] std::span<const float> parameters() const noexcept { return parameters_; }

  // Adds the gradient of the summed loss of these images to `gradient` (as long as parameters()).
  Score add_gradient(const Dataset& data, std::span<const uint32_t> images, std::span<float> gradient);
  [[nodiscard]] Score evaluate(const Dataset& data);

 private:
  // Fills hidden_out_ and probability_; adds to the score.
  void forward(std::span<const float> image, uint8_t label, Score& score);

  size_t hidden_;
  std::vector<float> parameters_;
  std::vector<float> hidden_out_;
  std::vector<float> hidden_slope_;
  std::vector<float> probability_;
};

// The generator of everything random in the demo: splitmix64 (Steele, Lea, Flood 2014). Same numbers on every
// machine.
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
