#include "nccl_plugin/collnet/handle.h"

#include <gtest/gtest.h>

namespace sluice::nccl::collnet {
namespace {

Contact contact(uint8_t first, const std::string& address = "10.0.0.3", uint16_t port = 4711) {
  Contact c{.identity = {}, .address = address, .port = port};
  c.identity[0] = first;
  c.identity[15] = 0xA5;
  return c;
}

TEST(CollNetHandle, CarriesWhoAndWhere) {
  std::array<std::byte, abi::kHandleBytes> bytes;
  bytes.fill(std::byte{0xEE});
  for (const Contact& c :
       {contact(1), contact(255, "fd00:1234:5678:9abc:def0:1234:5678:9abc", 1), contact(7, "", 0)}) {
    write_handle(c, bytes);
    const auto read = read_handle(bytes);
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_EQ(*read, c);
  }
}

TEST(CollNetHandle, RefusesWhatIsNotOurs) {
  std::array<std::byte, abi::kHandleBytes> bytes{};
  EXPECT_EQ(read_handle(bytes).error().code, Errc::kBadMagic);
  write_handle(contact(1), bytes);
  bytes[4] = std::byte{9};
  EXPECT_EQ(read_handle(bytes).error().code, Errc::kBadVersion);
}

TEST(CollNetHandle, ReadsNoFurtherThanItsTextAreaWhenNothingEndsIt) {
  std::array<std::byte, abi::kHandleBytes> bytes;
  write_handle(contact(1), bytes);
  std::fill(bytes.begin() + 24, bytes.end(), std::byte{'1'});
  EXPECT_LT(read_handle(bytes)->address.size(), 64U);
}

TEST(CollNetHandle, NamesTheSessionWhateverTheOrderOfTheNodes) {
  EXPECT_EQ(session_of({contact(3), contact(1), contact(2)}),
            session_of({contact(2), contact(3), contact(1)}));
  EXPECT_NE(session_of({contact(3), contact(1), contact(2)}),
            session_of({contact(3), contact(1), contact(4)}));
}

TEST(CollNetHandle, RefusesTwoOfTheSameName) {
  EXPECT_TRUE(check_distinct({contact(3), contact(1), contact(2)}));
  EXPECT_EQ(check_distinct({contact(3), contact(1), contact(3)}).error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::nccl::collnet
