#include "store/model/body_values.h"

#include <gtest/gtest.h>

#include <vector>

#include "wire/store_messages.h"

namespace sluice::store {
namespace {

using wire::DType;

// 320 values: a block and a quarter. Small multiples of powers of two, which mxfp8 has exactly.
std::vector<float> values() {
  std::vector<float> all(320);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(static_cast<int>(i % 15) - 7) / 4;
  return all;
}

TEST(BodyValues, AllTypesKeepTheValues) {
  struct Case {
    DType type;
    uint64_t bytes;  // of 320 values
    float error;
  };
  for (const Case& c : {Case{DType::kF32, 1280, 0},
                        {DType::kF16, 640, 0},
                        {DType::kBf16, 640, 0},
                        {DType::kMxfp8, 528, 0},
                        {DType::kInt8Block, 528, 0.5F * 1.75F / 127}}) {
    SCOPED_TRACE(to_string(c.type));
    ASSERT_TRUE(is_body_type(c.type));
    ASSERT_EQ(body_bytes(c.type, 320), c.bytes);
    std::vector<std::byte> body(c.bytes);
    const std::vector<float> sent = values();
    encode_body(c.type, sent, body.data());
    std::vector<float> received(sent.size(), 9);
    ASSERT_TRUE(decode_body(c.type, body.data(), received).ok());
    for (size_t i = 0; i < sent.size(); ++i) ASSERT_NEAR(received[i], sent[i], 1.001F * c.error) << i;
    // A frame has whole elements, so each can be decoded alone.
    EXPECT_EQ(wire::kModelDataBytes % size_of(c.type), 0U);
    EXPECT_EQ(value_at(c.type, size_of(c.type)), body_bytes(c.type, 256) == 264 ? 256U : 1U);
  }
  EXPECT_FALSE(is_body_type(DType::kF64));
  EXPECT_FALSE(is_body_type(DType::kI8));
}

TEST(BodyValues, MalformedBlocksAreRefused) {
  const std::vector<float> sent = values();
  std::vector<std::byte> body(body_bytes(DType::kInt8Block, sent.size()));
  encode_body(DType::kInt8Block, sent, body.data());
  body.back() = std::byte{0x80};  // of a value that the last block lacks
  std::vector<float> received(sent.size(), 9);
  EXPECT_EQ(decode_body(DType::kInt8Block, body.data(), received).code(), Errc::kBadField);
  EXPECT_EQ(received, std::vector<float>(sent.size(), 9));
}

}  // namespace
}  // namespace sluice::store
