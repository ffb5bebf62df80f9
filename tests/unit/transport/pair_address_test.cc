#include "transport/rdma/pair_address.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/bytes.h"

namespace sluice::transport::rdma {
namespace {

const PairAddress kExample{.number = 0xabcdef,
                           .sequence = 0x123456,
                           .mtu = 5,
                           .segment_bytes = 16384,
                           .segments = 32,
                           .gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1}};

using AddressBytes = std::array<std::byte, kPairAddressBytes>;

AddressBytes encoded() {
  AddressBytes bytes;
  encode(kExample, bytes);
  return bytes;
}

TEST(PairAddress, DecodesWhatItEncodes) {
  const auto decoded = decode_pair_address(encoded());
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, kExample);
}

TEST(PairAddress, RejectsFieldsOutOfRange) {
  struct Case {
    Errc code;
    std::function<void(std::byte*)> corrupt;
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
    c.corrupt(bytes.data());
    const auto decoded = decode_pair_address(bytes);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, c.code) << decoded.error().text;
  }
}

}  // namespace
}  // namespace sluice::transport::rdma
