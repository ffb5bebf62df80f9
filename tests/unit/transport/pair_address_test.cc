#include "transport/rdma/pair_address.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/bytes.h"

namespace sluice::transport::rdma {
namespace {

const PairAddress kSome{.number = 0xabcdef,
                        .sequence = 0x123456,
                        .mtu = 5,
                        .segment_bytes = 16384,
                        .segments = 32,
                        .gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1}};

using AddressBytes = std::array<std::byte, kPairAddressBytes>;

AddressBytes encoded() {
  AddressBytes bytes;
  encode(kSome, bytes);
  return bytes;
}

TEST(PairAddress, ComesBackAsItWas) {
  const auto back = decode_pair_address(encoded());
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, kSome);
}

TEST(PairAddress, OutOfRangeIsRefused) {
  struct Case {
    Errc code;
    std::function<void(std::byte*)> spoil;
  };
  const std::vector<Case> cases{
      {Errc::kBadMagic, [](std::byte* p) { p[0] = std::byte{'X'}; }},
      {Errc::kBadVersion, [](std::byte* p) { p[2] = std::byte{1}; }},
      {Errc::kBadField, [](std::byte* p) { p[3] = std::byte{0}; }},
      {Errc::kBadField, [](std::byte* p) { p[3] = std::byte{6}; }},
      {Errc::kBadField, [](std::byte* p) { store_le<uint32_t>(p + 4, 1U << 24); }},
      {Errc::kBadField, [](std::byte* p) { store_le<uint32_t>(p + 8, 1U << 24); }},
      {Errc::kBadField, [](std::byte* p) { store_le<uint32_t>(p + 12, 255); }},
      {Errc::kBadField, [](std::byte* p) { store_le<uint32_t>(p + 12, (1U << 20) + 1); }},
      {Errc::kBadField, [](std::byte* p) { store_le<uint16_t>(p + 16, 1); }},
  };
  for (const Case& c : cases) {
    AddressBytes bytes = encoded();
    c.spoil(bytes.data());
    const auto back = decode_pair_address(bytes);
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().code, c.code) << back.error().text;
  }
}

}  // namespace
}  // namespace sluice::transport::rdma
