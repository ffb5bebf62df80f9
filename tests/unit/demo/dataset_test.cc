#include "demo/digits/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

namespace sluice::demo {
namespace {

std::string line(const std::string& pixel, const std::string& label) {
  std::string text;
  for (size_t i = 0; i < kPixels; ++i) text += pixel + ",";
  return text + label + "\n";
}

TEST(Digits, AreEmbeddedInTheProgram) {
  const auto digits = load_digits();
  ASSERT_TRUE(digits.has_value()) << digits.error().text;
  EXPECT_EQ(digits->size(), 1797u);
  EXPECT_EQ(digits->pixels.size(), 1797u * kPixels);
  std::array<size_t, kClasses> of_class{};
  for (uint8_t label : digits->labels) ++of_class.at(label);
  EXPECT_EQ(of_class[0], 178u);  // from the table of the data set's test part
  EXPECT_EQ(of_class[1], 182u);
  EXPECT_EQ(of_class[9], 180u);
  const auto [min, max] = std::minmax_element(digits->pixels.begin(), digits->pixels.end());
  EXPECT_EQ(*min, 0.0F);
  EXPECT_EQ(*max, 1.0F);
}

TEST(Digits, EveryFifthImageIsHeldOut) {
  const auto digits = load_digits();
  ASSERT_TRUE(digits.has_value());
  const Split parts = split(*digits);
  EXPECT_EQ(parts.held_out.size(), 360u);
  EXPECT_EQ(parts.train.size() + parts.held_out.size(), digits->size());
  EXPECT_EQ(parts.held_out.labels[1], digits->labels[5]);
  EXPECT_EQ(parts.train.labels[4], digits->labels[6]);
  const auto image = parts.train.image(4);
  EXPECT_TRUE(std::equal(image.begin(), image.end(), digits->image(6).begin()));
}

TEST(Digits, ParserAcceptsOnlyCompleteLinesInRange) {
  EXPECT_EQ(parse_digits(line("16", "9"))->size(), 1u);
  EXPECT_EQ(parse_digits(line("0", "0") + line("1", "2"))->size(), 2u);
  EXPECT_FALSE(parse_digits(line("17", "9")));
  EXPECT_FALSE(parse_digits(line("16", "10")));
  EXPECT_FALSE(parse_digits(line("x", "1")));
  const std::string whole = line("3", "4");
  for (size_t n = 1; n < whole.size(); ++n) EXPECT_FALSE(parse_digits(whole.substr(0, n))) << n;
  EXPECT_EQ(parse_digits(line("1", "2") + line("99", "1")).error().text,
            "digits: line 2, column 1: expected a pixel value from 0 to 16");
}

}  // namespace
}  // namespace sluice::demo
