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
void expect_round_trips() {
  std::array<std::byte, 16> out{};
  for (const T value : {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()}) {
    for (size_t offset = 0; offset < 8; ++offset) {  // any alignment
      store_le(out.data() + offset, value);
      EXPECT_EQ(load_le<T>(out.data() + offset), value);
    }
  }
}

TEST(Bytes, RoundTripsExtremesOfEveryTypeAtEveryAlignment) {
  const auto round_trip_all = []<typename... T>() { (expect_round_trips<T>(), ...); };
  round_trip_all.operator()<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>();
}

}  // namespace
}  // namespace sluice
