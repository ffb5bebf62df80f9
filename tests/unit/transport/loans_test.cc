#include "transport/rdma/loans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace sluice::transport::rdma {
namespace {

LentPlace loan(uint64_t sequence, uint16_t view = 0) {
  return {.frame = {.view_version = view, .sequence = sequence},
          .address = 1000 + sequence,
          .key = 7,
          .capacity = 64};
}

TEST(Loans, AreReadAsTheyWereWritten) {
  const LentPlace written{.frame = {.view_version = 0xabcd, .sequence = 0x0123456789abcdef},
                          .address = 0xfedcba9876543210,
                          .key = 0x89abcdef,
                          .capacity = 0x76543210};
  std::array<std::byte, kLoanBytes> bytes{};
  encode(written, bytes);
  const LentPlace read = decode_loan(bytes);
  EXPECT_EQ(read.frame, written.frame);
  EXPECT_EQ(read.address, written.address);
  EXPECT_EQ(read.key, written.key);
  EXPECT_EQ(read.capacity, written.capacity);
}

// By the bit that the protocol names, and no matter what is behind it.
TEST(Loans, SayThatPayloadMayComeNowhereElse) {
  std::array<std::byte, kLoanBytes> bytes{};
  LentPlace written = loan(1);
  encode(written, bytes);
  EXPECT_EQ(bytes[26], std::byte{0});
  EXPECT_FALSE(decode_loan(bytes).only_here);
  written.only_here = true;
  encode(written, bytes);
  EXPECT_EQ(bytes[26], std::byte{1});
  EXPECT_TRUE(decode_loan(bytes).only_here);
  std::fill(bytes.begin() + 26, bytes.end(), std::byte{0xfe});
  EXPECT_FALSE(decode_loan(bytes).only_here);
}

TEST(Loans, EndWithTheirFrameOrOneBehindIt) {
  Loans loans;
  for (uint64_t s = 0; s < 5; ++s) ASSERT_TRUE(loans.push(loan(s)));
  EXPECT_EQ(loans.settle(loan(1).frame)->address, 1001U);
  EXPECT_FALSE(loans.settle(loan(1).frame)) << "twice";
  EXPECT_FALSE(loans.settle(loan(0).frame)) << "its time is over";
  EXPECT_EQ(loans.find(loan(4).frame)->address, 1004U);
  EXPECT_FALSE(loans.settle(loan(3).frame)) << "that went by too";
  EXPECT_EQ(loans.settle(loan(4).frame)->address, 1004U);
  EXPECT_TRUE(loans.empty());
}

TEST(Loans, OfAnOlderViewEndWithTheFirstFrameOfTheNext) {
  Loans loans;
  ASSERT_TRUE(loans.push(loan(10, 1)));
  ASSERT_TRUE(loans.push(loan(11, 1)));
  ASSERT_TRUE(loans.push(loan(0, 2)));
  EXPECT_EQ(loans.settle(loan(0, 2).frame)->frame, loan(0, 2).frame);
  EXPECT_TRUE(loans.empty());
}

TEST(Loans, AreTakenInOrderOnlyAndNotWithoutBound) {
  Loans loans;
  ASSERT_TRUE(loans.push(loan(5)));
  EXPECT_FALSE(loans.push(loan(5)));
  EXPECT_FALSE(loans.push(loan(4)));
  for (uint64_t s = 6; !loans.full(); ++s) ASSERT_TRUE(loans.push(loan(s)));
  EXPECT_FALSE(loans.push(loan(1000)));
}

// Frames and word of loans for them cross: both sides come to the same count all the same.
TEST(Loans, ThatComeAfterTheirFrameAreOver) {
  Loans loans;
  EXPECT_FALSE(loans.settle(loan(40).frame));
  for (uint64_t s = 0; s <= 40 + kMostLoans; ++s) ASSERT_TRUE(loans.push(loan(s))) << s;
  EXPECT_TRUE(loans.full());
  EXPECT_FALSE(loans.push(loan(41 + kMostLoans)));
  EXPECT_EQ(loans.find(loan(41).frame)->address, 1041U);
}

TEST(Loans, MayBeMadeAgainWhenTheyWereNeverTold) {
  Loans loans;
  ASSERT_TRUE(loans.push(loan(3)));
  (void)loans.next_untold();
  loans.told();
  ASSERT_TRUE(loans.push(loan(4)));
  loans.drop_untold();
  EXPECT_TRUE(loans.push(loan(4)));
  EXPECT_FALSE(loans.push(loan(3))) << "that one was told";
}

TEST(Loans, MayBeMadeAgainWhenTheyWereGivenBack) {
  Loans loans;
  ASSERT_TRUE(loans.push(loan(3)));
  loans.clear();
  EXPECT_TRUE(loans.push(loan(3)));
}

TEST(Loans, AreToldOnce) {
  Loans loans;
  for (uint64_t s = 0; s < 3; ++s) ASSERT_TRUE(loans.push(loan(s)));
  EXPECT_FALSE(loans.any_told());
  EXPECT_EQ(loans.next_untold()->address, 1000U);
  loans.told();
  EXPECT_TRUE(loans.any_told());
  // Its frame came before the peer had heard of it: there is nothing to tell any more.
  EXPECT_TRUE(loans.settle(loan(1).frame));
  EXPECT_FALSE(loans.any_told());
  EXPECT_EQ(loans.next_untold()->address, 1002U);
  loans.drop_untold();
  EXPECT_EQ(loans.next_untold(), nullptr);
  EXPECT_TRUE(loans.empty());
}

TEST(Loans, ThatWereToldStayWhenTheOthersAreDropped) {
  Loans loans;
  for (uint64_t s = 0; s < 3; ++s) ASSERT_TRUE(loans.push(loan(s)));
  (void)loans.next_untold();
  loans.told();
  loans.drop_untold();
  EXPECT_TRUE(loans.any_told());
  EXPECT_TRUE(loans.settle(loan(0).frame));
  EXPECT_TRUE(loans.empty());
}

}  // namespace
}  // namespace sluice::transport::rdma
