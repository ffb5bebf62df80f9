#include "wire/payload/sparse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/support/hex_file.h"
#include "wire/frame.h"

namespace sluice::wire {
namespace {

using Bytes = std::vector<std::byte>;

// A payload in which about `zeros` of the blocks are zero.
Bytes payload_with(std::mt19937& random, size_t bytes, DType t, double zeros) {
  Bytes payload(bytes);
  const size_t block = sparse_block_bytes(t);
  for (size_t at = 0; at < bytes; at += block) {
    if (std::uniform_real_distribution(0.0, 1.0)(random) < zeros) continue;
    const size_t end = std::min(bytes, at + block);
    // A single byte anywhere, or all of them.
    if (random() % 2 == 0) {
      payload[at + random() % (end - at)] = std::byte{1};
    } else {
      for (size_t i = at; i < end; ++i) payload[i] = static_cast<std::byte>(random());
    }
  }
  return payload;
}

Bytes encoded(const Bytes& payload, DType t) {
  Bytes out(payload.size());
  out.resize(encode_sparse(payload, t, out.data()));
  return out;
}

TEST(Sparse, ExpandsToThePayloadForEveryTypeAndLength) {
  std::mt19937 random(4);
  for (int round = 0; round < 800; ++round) {
    const auto t = static_cast<DType>(random() % kDTypeCount);
    const size_t size = size_of(t);
    const size_t count = 1 + random() % (20'000 / size);
    const Bytes payload = payload_with(random, count * size, t, random() % 2 == 0 ? 0.9 : 0.5);
    const size_t length = sparse_length(payload, t);
    if (length == 0) continue;
    EXPECT_LE(8 * length, 7 * payload.size());
    Bytes sparse = encoded(payload, t);
    ASSERT_EQ(sparse.size(), length);
    Bytes in_place = payload;
    ASSERT_EQ(encode_sparse(in_place, t, in_place.data()), length);
    in_place.resize(length);
    ASSERT_EQ(in_place, sparse);
    sparse.resize(payload.size(), std::byte{0xe7});
    ASSERT_TRUE(expand_sparse(sparse.data(), length, payload.size(), t));
    ASSERT_EQ(sparse, payload);
  }
}

TEST(Sparse, TheLargestPayloadOfTheSmallestType) {
  Bytes payload(kMaxPayload);
  payload[0] = payload[kMaxPayload / 2] = payload[kMaxPayload - 1] = std::byte{1};
  Bytes sparse = encoded(payload, DType::kU8);
  const size_t length = sparse.size();
  EXPECT_EQ(length, 3 * 64 + kMaxPayload / 64 / 8);
  sparse.resize(kMaxPayload);
  ASSERT_TRUE(expand_sparse(sparse.data(), length, kMaxPayload, DType::kU8));
  EXPECT_EQ(sparse, payload);
}

TEST(Sparse, DensePayloadsStayAsTheyAre) {
  Bytes payload(64 * 4 * 100, std::byte{1});
  EXPECT_EQ(sparse_length(payload, DType::kF32), 0U);
  std::fill_n(payload.begin(), 64 * 4 * 12, std::byte{0});
  EXPECT_EQ(sparse_length(payload, DType::kF32), 0U) << "12 of 100 blocks save less than an eighth";
  std::fill_n(payload.begin(), 64 * 4 * 13, std::byte{0});
  EXPECT_EQ(sparse_length(payload, DType::kF32), 64U * 4 * 87 + 13);
}

// Receivers refuse a sparse payload that is not shorter, and the extension takes 16 bytes.
TEST(Sparse, ShortPayloadsStayAsTheyAre) {
  for (size_t bytes = 0; bytes < 128; ++bytes)
    EXPECT_EQ(sparse_length(Bytes(bytes), DType::kU8), 0U) << bytes;
  EXPECT_EQ(sparse_length(Bytes(128), DType::kU8), 1U);
}

TEST(Sparse, MinusZeroTravels) {
  std::vector<float> values(64 * 100, 0.F);
  values[70] = -0.F;
  Bytes payload(values.size() * sizeof(float));
  std::memcpy(payload.data(), values.data(), payload.size());
  EXPECT_EQ(sparse_length(payload, DType::kF32), 256U + 13);
}

// The payload of vectors/sparse.hex, after a header of 64 bytes and 32 bytes of extensions.
TEST(Sparse, ExpandsTheGoldenPayload) {
  Bytes frame = test::read_hex_file(std::string(SLUICE_VECTORS) + "/sparse.hex");
  ASSERT_EQ(frame.size(), 64U + 32 + 269);
  Bytes payload(frame.begin() + 96, frame.end());
  payload.resize(259 * sizeof(float));
  ASSERT_TRUE(expand_sparse(payload.data(), 269, payload.size(), DType::kF32));
  std::vector<float> values(259);
  std::memcpy(values.data(), payload.data(), payload.size());
  for (size_t i = 0; i < 259; ++i)
    EXPECT_EQ(values[i], i >= 64 && i < 128 ? static_cast<float>(i - 63) : 0.F) << i;
  EXPECT_TRUE(std::signbit(values[257]));
  EXPECT_FALSE(std::signbit(values[256]));
}

TEST(Sparse, RefusesEveryBitmapThatDisagreesWithTheLength) {
  std::mt19937 random(9);
  const Bytes payload = payload_with(random, 100 * 256 - 8, DType::kF32, 0.8);
  const Bytes good = encoded(payload, DType::kF32);
  const auto expands = [&](Bytes bytes, size_t expanded) {
    const size_t length = bytes.size();
    bytes.resize(std::max(expanded, length));
    return expand_sparse(bytes.data(), length, expanded, DType::kF32);
  };
  ASSERT_TRUE(expands(good, payload.size()));
  for (size_t bit = 0; bit < 13 * 8; ++bit) {
    Bytes bad = good;
    bad[bad.size() - 13 + bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(expands(bad, payload.size())) << "bit " << bit;
  }
  for (size_t length = 0; length < good.size(); ++length)
    ASSERT_FALSE(expands(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(length)), payload.size()));
  for (const size_t expanded :
       {size_t{0}, size_t{8}, payload.size() - 2048, payload.size() + 2048, payload.size() * 2})
    EXPECT_FALSE(expands(good, expanded)) << expanded;
}

}  // namespace
}  // namespace sluice::wire
