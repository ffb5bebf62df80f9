#include "demo/digits/network.h"

#include <algorithm>
#include <cmath>

namespace sluice::demo {
namespace {

// Offsets in the parameters.
struct Layout {
  explicit Layout(size_t hidden) noexcept
      : bias1(kPixels * hidden),
        weight2(bias1 + hidden),
        bias2(weight2 + hidden * kClasses),
        size(bias2 + kClasses) {}
  size_t bias1;
  size_t weight2;
  size_t bias2;
  size_t size;
};

}  // namespace

uint64_t Random::next() noexcept {
  state_ += 0x9e3779b97f4a7c15U;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

Network::Network(size_t hidden, uint64_t seed)
    : hidden_(hidden),
      parameters_(Layout(hidden).size, 0.0F),
      hidden_out_(hidden),
      hidden_slope_(hidden),
      probability_(kClasses) {
  Random random(seed);
  const Layout offset(hidden);
  const float bound1 = std::sqrt(6.0F / kPixels);
  const float bound2 = std::sqrt(6.0F / static_cast<float>(hidden));
  for (size_t i = 0; i < offset.bias1; ++i) parameters_[i] = (2 * random.uniform() - 1) * bound1;
  for (size_t i = offset.weight2; i < offset.bias2; ++i) parameters_[i] = (2 * random.uniform() - 1) * bound2;
}

void Network::forward(std::span<const float> image, uint8_t label, Score& score) {
  const Layout offset(hidden_);
  const float* const weight1 = parameters_.data();
  const float* const weight2 = parameters_.data() + offset.weight2;
  float* const hidden = hidden_out_.data();
  std::copy_n(parameters_.data() + offset.bias1, hidden_, hidden);
  for (size_t p = 0; p < kPixels; ++p) {
    const float x = image[p];
    if (x == 0) continue;  // true for half of all pixels
    for (size_t j = 0; j < hidden_; ++j) hidden[j] += x * weight1[p * hidden_ + j];
  }
  std::copy_n(parameters_.data() + offset.bias2, kClasses, probability_.data());
  for (size_t j = 0; j < hidden_; ++j) {
    hidden[j] = std::max(hidden[j], 0.0F);
    for (size_t k = 0; k < kClasses; ++k) probability_[k] += hidden[j] * weight2[j * kClasses + k];
  }
  const auto best = std::max_element(probability_.begin(), probability_.end());
  score.correct += best - probability_.begin() == label ? 1.0F : 0.0F;
  const float highest = *best;
  const float of_label = probability_[label] - highest;
  float sum = 0;
  for (float& v : probability_) {
    v = std::exp(v - highest);
    sum += v;
  }
  score.loss += std::log(sum) - of_label;
  for (float& v : probability_) v /= sum;
}

Score Network::add_gradient(const Dataset& data, std::span<const uint32_t> images,
                            std::span<float> gradient) {
  const Layout offset(hidden_);
  const float* const weight2 = parameters_.data() + offset.weight2;
  float* const gradient1 = gradient.data();
  float* const gradient2 = gradient.data() + offset.weight2;
  Score score;
  for (uint32_t i : images) {
    const std::span<const float> image = data.image(i);
    forward(image, data.labels[i], score);
    std::vector<float>& slope = probability_;  // derivative of the loss by the inputs of the softmax
    slope[data.labels[i]] -= 1;
    for (size_t k = 0; k < kClasses; ++k) gradient[offset.bias2 + k] += slope[k];
    for (size_t j = 0; j < hidden_; ++j) {
      float back = 0;
      for (size_t k = 0; k < kClasses; ++k) {
        gradient2[j * kClasses + k] += hidden_out_[j] * slope[k];
        back += weight2[j * kClasses + k] * slope[k];
      }
      hidden_slope_[j] = hidden_out_[j] > 0 ? back : 0.0F;
      gradient[offset.bias1 + j] += hidden_slope_[j];
    }
    const float* const hidden_slope = hidden_slope_.data();
    for (size_t p = 0; p < kPixels; ++p) {
      const float x = image[p];
      if (x == 0) continue;
      for (size_t j = 0; j < hidden_; ++j) gradient1[p * hidden_ + j] += x * hidden_slope[j];
    }
  }
  return score;
}

Score Network::evaluate(const Dataset& data) {
  Score score;
  for (size_t i = 0; i < data.size(); ++i) forward(data.image(i), data.labels[i], score);
  return score;
}

}  // namespace sluice::demo
