#include "bench/e2e/star/star_shape.h"

#include <gtest/gtest.h>

#include "core/units.h"

namespace sluice::bench {
namespace {

TEST(StarShape, HandshakeRoundTrip) {
  const StarShape shape{.workers = 8, .slots = 3, .chunk_bytes = 256 * kKiB};
  const auto read = decode_handshake(encode_handshake(shape));
  ASSERT_TRUE(read.has_value()) << read.error().text;
  EXPECT_EQ(*read, shape);
}

TEST(StarShape, ForeignOrTooLargeHandshakeIsRefused) {
  StarHandshake handshake = encode_handshake({.workers = 1, .slots = 1, .chunk_bytes = 8});
  handshake[0] ^= std::byte{1};
  EXPECT_FALSE(decode_handshake(handshake).has_value());
  for (const StarShape& shape : {StarShape{.workers = 0, .slots = 1, .chunk_bytes = 8},
                                 StarShape{.workers = 1, .slots = 0, .chunk_bytes = 8},
                                 StarShape{.workers = 1, .slots = 1, .chunk_bytes = 0},
                                 StarShape{.workers = 1, .slots = 1, .chunk_bytes = uint64_t{1} << 40},
                                 StarShape{.workers = ~0U, .slots = ~0U, .chunk_bytes = ~uint64_t{0}}}) {
    EXPECT_FALSE(decode_handshake(encode_handshake(shape)).has_value());
  }
}

}  // namespace
}  // namespace sluice::bench
