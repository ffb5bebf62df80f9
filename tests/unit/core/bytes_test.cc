#include "core/bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace sluice {
namespace {

TEST(Bytes, StoresTheLowByteFirst) {
  std::array<std::byte, 8> out{};
  store_le(out.data(), uint64_t{0x0807060504030201});
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<std::byte>(i + 1));
  EXPECT_EQ(load_le<uint64_t>(out.data()), 0x0807060504030201u);
  EXPECT_EQ(load_le<uint32_t>(out.data()), 0x04030201u);
  EXPECT_EQ(load_le<uint16_t>(out.data()), 0x0201u);
  EXPECT_EQ(load_le<uint8_t>(out.data()), 0x01u);
}

TEST(Bytes, WritesOnlyTheBytesOfTheType) {
  std::array<std::byte, 4> out{};
  out.fill(std::byte{0xEE});
  store_le(out.data() + 1, uint16_t{0});
  EXPECT_EQ(out[0], std::byte{0xEE});
  EXPECT_EQ(out[3], std::byte{0xEE});
}

template <typename T>
void expect_round_trip(T value) {
  std::array<std::byte, 16> out{};
  for (size_t offset = 0; offset < 8; ++offset) {  // any alignment
    store_le(out.data() + offset, value);
    EXPECT_EQ(load_le<T>(out.data() + offset), value);
  }
}

TEST(Bytes, RoundTripsExtremesOfEveryTypeAtEveryAlignment) {
  expect_round_trip(std::numeric_limits<int8_t>::min());
  expect_round_trip(std::numeric_limits<int16_t>::min());
  expect_round_trip(std::numeric_limits<int32_t>::min());
  expect_round_trip(std::numeric_limits<int64_t>::min());
  expect_round_trip(std::numeric_limits<uint8_t>::max());
  expect_round_trip(std::numeric_limits<uint16_t>::max());
  expect_round_trip(std::numeric_limits<uint32_t>::max());
  expect_round_trip(std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace sluice
