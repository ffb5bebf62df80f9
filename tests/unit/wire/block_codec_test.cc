// The encodings of protocol.md section 6, "Blocks". A test in Python compares the same functions with another
// implementation of the formats; this one has golden blocks and the properties that the protocol states.
#include "wire/payload/block_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace sluice::wire {
namespace {

using Block = std::array<std::byte, kBlockBytes>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Block encode(DType type, const std::vector<float>& values) {
  Block block;
  block.fill(std::byte{0xe7});
  encode_blocks(type, values.data(), values.size(), block.data());
  return block;
}

std::vector<float> decode(DType type, const Block& block) {
  std::vector<float> values(kBlockValues);
  decode_blocks(type, block.data(), values.size(), values.data());
  return values;
}

std::vector<unsigned> numbers(const Block& block, size_t first, size_t count) {
  std::vector<unsigned> out;
  for (size_t i = first; i < first + count; ++i) out.push_back(std::to_integer<unsigned>(block[i]));
  return out;
}

float scale_of(const Block& block, size_t group) {
  float scale = 0;
  std::memcpy(&scale, block.data() + group * sizeof scale, sizeof scale);
  return scale;
}

TEST(BlockCodec, GoldenMxfp8Block) {
  std::vector<float> values(40, 0.F);
  // Scale 2^0: 448 is the largest. 1, -1.0625 (a tie to even), the least subnormal, half of it, -0.
  values[0] = 448, values[1] = 1, values[2] = -1.0625F, values[3] = 0x1p-9F, values[4] = 0x1p-10F;
  values[5] = -0.F, values[6] = kNan, values[7] = -kInfinity;
  values[32] = 449;  // needs scale 2^1
  const Block block = encode(DType::kMxfp8, values);
  EXPECT_EQ(numbers(block, 0, 8), (std::vector<unsigned>{127, 128, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(numbers(block, 8, 9), (std::vector<unsigned>{0x7e, 0x38, 0xb8, 0x01, 0x00, 0x80, 0x7f, 0x7f, 0}));
  EXPECT_EQ(numbers(block, 8 + 32, 2), (std::vector<unsigned>{0x76, 0x00}));
  EXPECT_EQ(numbers(block, 8 + 40, 216), std::vector<unsigned>(216, 0)) << "padding";
}

TEST(BlockCodec, GoldenInt8Block) {
  std::vector<float> values(200, 0.F);
  values[0] = 127, values[1] = -126.5F, values[2] = 0.5F, values[3] = 1.5F, values[4] = -127;
  values[128] = 1, values[129] = kNan;
  const Block block = encode(DType::kInt8Block, values);
  EXPECT_EQ(scale_of(block, 0), 1.F);
  EXPECT_EQ(numbers(block, 8, 5), (std::vector<unsigned>{127, 0x82, 0, 2, 0x81}));
  EXPECT_EQ(bits_of(scale_of(block, 1)), 0x7fc00000U);
  EXPECT_EQ(numbers(block, 8 + 128, 128), std::vector<unsigned>(128, 0));
  EXPECT_TRUE(std::isnan(decode(DType::kInt8Block, block)[199]));
}

// A value that a block represents stays as it is, so results of reducers can be encoded again without loss.
TEST(BlockCodec, EveryCodeWithEveryScaleOfAnEncoderIsEncodedAgain) {
  for (unsigned scale = 0; scale <= 246; ++scale) {  // 448 with 247 overflows f32
    std::vector<float> values(kBlockValues, 0.F);
    for (size_t i = 0; i < kBlockValues; ++i) {
      // Each group has the largest code, so its scale is the given one.
      const auto code = static_cast<uint8_t>(i % 32 == 0 ? 0x7e : i);
      values[i] = Mxfp8::value(code, Mxfp8::scale(static_cast<uint8_t>(scale)));
    }
    const Block block = encode(DType::kMxfp8, values);
    ASSERT_EQ(numbers(block, 0, 8), std::vector<unsigned>(8, scale));
    for (size_t i = 0; i < kBlockValues; ++i) {
      const unsigned code = i % 32 == 0 ? 0x7e : static_cast<unsigned>(i);
      const unsigned expected = (code & 0x7f) == 0x7f ? 0x7f : code;
      ASSERT_EQ(std::to_integer<unsigned>(block[8 + i]), expected) << "scale " << scale;
    }
  }
}

TEST(BlockCodec, ErrorsAreBoundedForAllMagnitudes) {
  std::mt19937 random(7);
  for (int exponent = -149; exponent < 128; ++exponent) {
    std::vector<float> values(kBlockValues);
    for (float& x : values)
      x = std::ldexp(static_cast<float>(random() % 0x1000000) / 0x800000 - 1.F, exponent);
    const float largest = std::fabs(
        *std::ranges::max_element(values, [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
    const auto fp8 = decode(DType::kMxfp8, encode(DType::kMxfp8, values));
    const auto int8 = decode(DType::kInt8Block, encode(DType::kInt8Block, values));
    for (size_t i = 0; i < kBlockValues; ++i) {
      // Half of the last place: 4 bits of significand, and at the least 2^-10 of 2^-8 of the largest value.
      const double fp8_bound = std::max(std::fabs(values[i]) / 16.0, largest * 0x1p-17 + 0x1p-137);
      ASSERT_LE(std::fabs(double{fp8[i]} - values[i]), fp8_bound) << values[i] << " of " << largest;
      const double int8_bound = largest / 253.9 + 0x1p-127;
      ASSERT_LE(std::fabs(double{int8[i]} - values[i]), int8_bound) << values[i] << " of " << largest;
    }
  }
}

// The products that a fold adds must not be rounded: protocol.md says that they are exact.
TEST(BlockCodec, ProductsOfCodeAndScaleAreExact) {
  for (unsigned scale = 0; scale < 255; ++scale) {
    for (unsigned code = 0; code < 256; ++code) {
      if ((code & 0x7f) == 0x7f) continue;
      const float product =
          Mxfp8::value(static_cast<uint8_t>(code), Mxfp8::scale(static_cast<uint8_t>(scale)));
      const double exact =
          std::ldexp(double{Mxfp8::decode(static_cast<uint8_t>(code))}, static_cast<int>(scale) - 127);
      if (std::fabs(exact) < 0x1p128) {
        ASSERT_EQ(double{product}, exact) << code << " " << scale;
      }
    }
  }
  std::mt19937 random(3);
  for (int i = 0; i < 200'000; ++i) {
    const uint32_t bits = (random() & 0x7fffff00) | 0x00800000;
    if (!Int8Block::is_valid_scale(bits)) continue;
    const float scale = float_of(bits);
    const auto code = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    const double exact = double{scale} * code;
    if (std::fabs(exact) < 0x1p128) {
      ASSERT_EQ(double{Int8Block::value(code, scale)}, exact) << code << " " << scale;
    }
  }
}

TEST(BlockCodec, ValuesAreCountedFromTheStartOfTheTensor) {
  std::mt19937 random(5);
  std::vector<float> values(1000);
  for (float& x : values) x = static_cast<float>(random() % 1000) - 500.F;
  for (const DType type : {DType::kMxfp8, DType::kInt8Block}) {
    std::vector<std::byte> whole(4 * kBlockBytes), parts(4 * kBlockBytes);
    const Rounding rounding{.stochastic = true, .seed = 99};
    encode_blocks(type, values.data(), 1000, whole.data(), rounding);
    Rounding second = rounding;
    second.first = 512;
    encode_blocks(type, values.data(), 512, parts.data(), rounding);
    encode_blocks(type, values.data() + 512, 488, parts.data() + 2 * kBlockBytes, second);
    EXPECT_EQ(whole, parts);
  }
}

TEST(BlockCodec, RefusesWhatNoEncoderOfInt8Makes) {
  const Block good = encode(DType::kInt8Block, std::vector<float>(256, 3.F));
  EXPECT_TRUE(are_valid_blocks(DType::kInt8Block, good));
  for (size_t i = kBlockScaleBytes; i < kBlockBytes; ++i) {
    Block bad = good;
    bad[i] = std::byte{0x80};
    EXPECT_FALSE(are_valid_blocks(DType::kInt8Block, bad)) << i;
    EXPECT_TRUE(are_valid_blocks(DType::kMxfp8, bad));
  }
  const auto with_scale = [&](size_t group, uint32_t bits) {
    Block block = good;
    std::memcpy(block.data() + 4 * group, &bits, sizeof bits);
    return are_valid_blocks(DType::kInt8Block, block);
  };
  for (const size_t group : {size_t{0}, size_t{1}}) {
    for (const uint32_t bits : {0U, 0x7fc00000U, 0x00800000U, 0x7f7fff00U, 0x3f800100U})
      EXPECT_TRUE(with_scale(group, bits)) << bits;
    for (const uint32_t bits :
         {1U, 0x80000000U, 0xbf800000U, 0x3f800001U, 0x007fff00U, 0x7f800000U, 0x7f800100U, 0xffc00000U})
      EXPECT_FALSE(with_scale(group, bits)) << bits;
  }
}

}  // namespace
}  // namespace sluice::wire
