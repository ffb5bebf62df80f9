#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "tests/unit/nccl_plugin/net_test_bed.h"

namespace sluice::nccl::test {
namespace {

// Transfers one message.
void transfer(NetPair& pair, size_t bytes, size_t capacity, int tag = 3) {
  SCOPED_TRACE(bytes);
  const auto out = pattern(bytes, static_cast<unsigned>(bytes));
  std::vector<std::byte> in(capacity, std::byte{0xee});
  Outcome received{pair.irecv(in, tag)};
  Outcome sent{pair.isend(out, tag)};
  ASSERT_NE(received.request, nullptr);
  ASSERT_NE(sent.request, nullptr);
  ASSERT_TRUE(poll_until_ended(sent, received));
  ASSERT_TRUE(sent.done);
  ASSERT_TRUE(received.done);
  EXPECT_EQ(sent.bytes, bytes);
  EXPECT_EQ(received.bytes, bytes);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
  for (size_t i = bytes; i < std::min(capacity, bytes + 4096); ++i)
    ASSERT_EQ(in[i], std::byte{0xee}) << "written past the message";
}

TEST(NetTransfer, TransfersMessagesOfAnySize) {
  for (const unsigned streams : {1u, 3u, 4u, 16u}) {
    SCOPED_TRACE(streams);
    NetPair pair(streams);
    for (const size_t bytes : {size_t{1}, size_t{3}, size_t{4095}, 64 * kKiB, 64 * kKiB + 1, 256 * kKiB - 1,
                               kMiB + 17, 8 * kMiB - 3, 8 * kMiB})
      transfer(pair, bytes, bytes);
  }
}

TEST(NetTransfer, ReturnsTheSizeOfAMessageShorterThanItsReceive) {
  NetPair pair;
  transfer(pair, 100, 4096);
  transfer(pair, 3 * kMiB + 1, 4 * kMiB);
  transfer(pair, 0, 4096);
}

TEST(NetTransfer, TransfersEmptyMessages) {
  NetPair pair;
  for (int round = 0; round < 100; ++round) transfer(pair, 0, 0);
}

TEST(NetTransfer, SendsNothingBeforeTheReceiveIsPosted) {
  NetPair pair;
  const auto out = pattern(100'000, 1);
  Outcome sent{pair.isend(out)};
  ASSERT_NE(sent.request, nullptr);
  for (int turn = 0; turn < 10'000; ++turn) update(sent);
  EXPECT_FALSE(sent.ended());
  std::vector<std::byte> in(out.size());
  Outcome received{pair.irecv(in)};
  ASSERT_TRUE(poll_until_ended(sent, received));
  EXPECT_TRUE(sent.done && received.done);
  EXPECT_EQ(in, out);
}

TEST(NetTransfer, KeepsThirtyTwoRequestsOpenAndRefusesMore) {
  NetPair pair;
  constexpr size_t kRounds = 20;
  std::vector<std::vector<std::byte>> out;
  std::vector<std::vector<std::byte>> in;
  for (unsigned i = 0; i < abi::kMaxRequests; ++i) {
    out.push_back(pattern(1 + i * 7919, i));
    in.emplace_back(out.back().size());
  }
  for (size_t round = 0; round < kRounds; ++round) {
    for (auto& buffer : in) std::ranges::fill(buffer, std::byte{0});
    std::array<Outcome, abi::kMaxRequests> sent;
    std::array<Outcome, abi::kMaxRequests> received;
    for (size_t i = 0; i < sent.size(); ++i) {
      ASSERT_NE(sent[i].request = pair.isend(out[i]), nullptr);
      ASSERT_NE(received[i].request = pair.irecv(in[i]), nullptr);
    }
    EXPECT_EQ(pair.isend(out[0]), nullptr);
    EXPECT_EQ(pair.irecv(in[0]), nullptr);
    ASSERT_TRUE(poll_until_ended(sent, received));
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_TRUE(sent[i].done && received[i].done);
      EXPECT_EQ(received[i].bytes, out[i].size());
      EXPECT_EQ(in[i], out[i]) << i;
    }
  }
}

TEST(NetTransfer, MatchesByTagAndThenByOrder) {
  NetPair pair;
  constexpr int kTags = 4;
  constexpr size_t kEach = 8;
  std::vector<std::vector<std::byte>> out;
  std::vector<std::vector<std::byte>> in(kTags * kEach, std::vector<std::byte>(40'000));
  std::vector<Outcome> sent;
  std::vector<Outcome> received(in.size());
  // Sends tag by tag; receives cycle through the tags in reverse.
  for (size_t i = 0; i < in.size(); ++i) {
    out.push_back(pattern(40'000 - i, static_cast<unsigned>(i)));
    sent.push_back({pair.isend(out.back(), static_cast<int>(i / kEach))});
  }
  for (size_t nth = 0; nth < kEach; ++nth) {
    for (int tag = kTags - 1; tag >= 0; --tag) {
      const size_t i = static_cast<size_t>(tag) * kEach + nth;
      received[i].request = pair.irecv(in[i], tag);
    }
  }
  ASSERT_TRUE(poll_until_ended(sent, received));
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_TRUE(received[i].done);
    in[i].resize(received[i].bytes);
    EXPECT_EQ(in[i], out[i]) << i;
  }
}

TEST(NetTransfer, TransfersOtherTagsWhileAReceiveStaysOpen) {
  NetPair pair;
  std::vector<std::byte> never(8);
  ASSERT_NE(pair.irecv(never, 99), nullptr);
  for (size_t i = 0; i < 100; ++i) transfer(pair, 100 + i, 200);
}

TEST(NetTransfer, TransfersMessagesAroundARingOfComms) {
  // Rank r sends to r + 1; each rank forwards the message it received.
  constexpr size_t kRanks = 4;
  std::vector<std::unique_ptr<NetPair>> links;
  for (size_t r = 0; r < kRanks; ++r) links.push_back(std::make_unique<NetPair>(2));
  const auto first = pattern(777'777, 5);
  std::vector<std::byte> carried = first;
  for (size_t hop = 0; hop < 3 * kRanks; ++hop) {
    NetPair& link = *links[hop % kRanks];
    std::vector<std::byte> in(carried.size());
    Outcome received{link.irecv(in)};
    Outcome sent{link.isend(carried)};
    ASSERT_TRUE(poll_until_ended(sent, received));
    ASSERT_TRUE(received.done);
    carried = in;
  }
  EXPECT_EQ(carried, first);
}

}  // namespace
}  // namespace sluice::nccl::test
