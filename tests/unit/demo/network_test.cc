#include "demo/digits/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice::demo {
namespace {

Dataset two_images() {
  Dataset data;
  Random random(7);
  for (int i = 0; i < 2; ++i) {
    for (size_t p = 0; p < kPixels; ++p) data.pixels.push_back(p % 3 == 0 ? 0.0F : random.uniform());
    data.labels.push_back(static_cast<uint8_t>(3 * i));
  }
  return data;
}

TEST(Network, InitialParametersDependOnTheSeedOnly) {
  const Network a(16, 1);
  const Network b(16, 1);
  const Network c(16, 2);
  EXPECT_TRUE(std::equal(a.parameters().begin(), a.parameters().end(), b.parameters().begin()));
  EXPECT_FALSE(std::equal(a.parameters().begin(), a.parameters().end(), c.parameters().begin()));
  EXPECT_EQ(a.parameters().size(), 64u * 16 + 16 + 16 * 10 + 10);
}

// Compares each component of the gradient with a central difference of the loss. In f32 it is accurate to
// about 1 %.
TEST(Network, GradientIsTheSlopeOfTheLoss) {
  const Dataset data = two_images();
  const std::vector<uint32_t> images = {0, 1};
  Network network(8, 3);
  std::vector<float> gradient(network.parameters().size(), 0.0F);
  const Score score = network.add_gradient(data, images, gradient);
  EXPECT_FLOAT_EQ(score.loss, network.evaluate(data).loss);

  constexpr float kStep = 1e-2F;
  for (size_t i = 0; i < gradient.size(); i += 7) {
    const float before = network.parameters()[i];
    network.parameters()[i] = before + kStep;
    const float above = network.evaluate(data).loss;
    network.parameters()[i] = before - kStep;
    const float below = network.evaluate(data).loss;
    network.parameters()[i] = before;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 0.01) << "parameter " << i;
  }
}

TEST(Network, GradientsOfImagesAddUp) {
  const Dataset data = two_images();
  Network network(8, 3);
  std::vector<float> once(network.parameters().size(), 0.0F);
  std::vector<float> twice = once;
  const std::vector<uint32_t> both = {0, 1};
  (void)network.add_gradient(data, both, once);
  (void)network.add_gradient(data, std::span(both).first(1), twice);
  (void)network.add_gradient(data, std::span(both).last(1), twice);
  EXPECT_EQ(once, twice);
}

TEST(Network, ACorrectCertainAnswerHasNoLoss) {
  Dataset data = two_images();
  Network network(4, 1);
  std::fill(network.parameters().begin(), network.parameters().end(), 0.0F);
  EXPECT_NEAR(network.evaluate(data).loss, 2 * std::log(10.0), 1e-5);  // all classes equally likely
  network.parameters()[network.parameters().size() - 10] =
      100;  // bias of class 0, the class of the first image
  const Score score = network.evaluate(data);
  EXPECT_EQ(score.correct, 1.0F);
  EXPECT_NEAR(score.loss, 100.0F, 1e-3);  // 0 for the first, all of it for the second
}

}  // namespace
}  // namespace sluice::demo
