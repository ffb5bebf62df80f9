#include "nccl_plugin/collnet/node_handle.h"

#include <gtest/gtest.h>

namespace sluice::nccl::collnet {
namespace {

NodeHandle make_handle(uint8_t first, const std::string& address = "10.0.0.3", uint16_t port = 4711) {
  NodeHandle c{.identity = {}, .address = address, .port = port};
  c.identity[0] = first;
  c.identity[15] = 0xA5;
  return c;
}

TEST(NodeHandle, DecodesWhatItEncodes) {
  std::array<std::byte, abi::kHandleBytes> bytes;
  bytes.fill(std::byte{0xEE});
  for (const NodeHandle& c : {make_handle(1), make_handle(255, "fd00:1234:5678:9abc:def0:1234:5678:9abc", 1),
                              make_handle(7, "", 0)}) {
    encode_node_handle(c, bytes);
    const auto read = decode_node_handle(bytes);
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_EQ(*read, c);
  }
}

TEST(NodeHandle, RejectsOtherPluginsAndVersions) {
  std::array<std::byte, abi::kHandleBytes> bytes{};
  EXPECT_EQ(decode_node_handle(bytes).error().code, Errc::kBadMagic);
  encode_node_handle(make_handle(1), bytes);
  bytes[4] = std::byte{9};
  EXPECT_EQ(decode_node_handle(bytes).error().code, Errc::kBadVersion);
}

TEST(NodeHandle, ReadsAnUnterminatedAddressUpToItsField) {
  std::array<std::byte, abi::kHandleBytes> bytes;
  encode_node_handle(make_handle(1), bytes);
  std::fill(bytes.begin() + 24, bytes.end(), std::byte{'1'});
  EXPECT_LT(decode_node_handle(bytes)->address.size(), 64U);
}

TEST(NodeHandle, SessionIdDoesNotDependOnTheOrderOfTheNodes) {
  EXPECT_EQ(session_id_of({make_handle(3), make_handle(1), make_handle(2)}),
            session_id_of({make_handle(2), make_handle(3), make_handle(1)}));
  EXPECT_NE(session_id_of({make_handle(3), make_handle(1), make_handle(2)}),
            session_id_of({make_handle(3), make_handle(1), make_handle(4)}));
}

TEST(NodeHandle, RejectsEqualIdentities) {
  EXPECT_TRUE(check_distinct({make_handle(3), make_handle(1), make_handle(2)}));
  EXPECT_EQ(check_distinct({make_handle(3), make_handle(1), make_handle(3)}).error().code,
            Errc::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::nccl::collnet
