#include "transport/rdma/remote_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace sluice::transport::rdma {
namespace {

AdvertisedBuffer buffer_for(uint64_t sequence, uint16_t view = 0) {
  return {.frame = {.view_version = view, .sequence = sequence},
          .address = 1000 + sequence,
          .key = 7,
          .capacity = 64};
}

TEST(RemoteBuffers, DecodeWhatTheyEncode) {
  const AdvertisedBuffer written{.frame = {.view_version = 0xabcd, .sequence = 0x0123456789abcdef},
                                 .address = 0xfedcba9876543210,
                                 .key = 0x89abcdef,
                                 .capacity = 0x76543210};
  std::array<std::byte, kAdvertisedBufferBytes> bytes{};
  encode(written, bytes);
  const AdvertisedBuffer read = decode_advertised_buffer(bytes);
  EXPECT_EQ(read.frame, written.frame);
  EXPECT_EQ(read.address, written.address);
  EXPECT_EQ(read.key, written.key);
  EXPECT_EQ(read.capacity, written.capacity);
}

// In bit 0 of the flags; the bytes after the flags are ignored.
TEST(RemoteBuffers, EncodeInPlaceOnlyInBitZeroOfTheFlags) {
  std::array<std::byte, kAdvertisedBufferBytes> bytes{};
  AdvertisedBuffer written = buffer_for(1);
  encode(written, bytes);
  EXPECT_EQ(bytes[26], std::byte{0});
  EXPECT_FALSE(decode_advertised_buffer(bytes).in_place_only);
  written.in_place_only = true;
  encode(written, bytes);
  EXPECT_EQ(bytes[26], std::byte{1});
  EXPECT_TRUE(decode_advertised_buffer(bytes).in_place_only);
  std::fill(bytes.begin() + 26, bytes.end(), std::byte{0xfe});
  EXPECT_FALSE(decode_advertised_buffer(bytes).in_place_only);
}

TEST(RemoteBuffers, EndWithTheirFrameOrALaterFrame) {
  RemoteBuffers buffers;
  for (uint64_t s = 0; s < 5; ++s) ASSERT_TRUE(buffers.push(buffer_for(s)));
  EXPECT_EQ(buffers.consume(buffer_for(1).frame)->address, 1001U);
  EXPECT_FALSE(buffers.consume(buffer_for(1).frame)) << "already consumed";
  EXPECT_FALSE(buffers.consume(buffer_for(0).frame)) << "ended with frame 1";
  EXPECT_EQ(buffers.find(buffer_for(4).frame)->address, 1004U);
  EXPECT_FALSE(buffers.consume(buffer_for(3).frame)) << "ended by find() of frame 4";
  EXPECT_EQ(buffers.consume(buffer_for(4).frame)->address, 1004U);
  EXPECT_TRUE(buffers.empty());
}

TEST(RemoteBuffers, OfAnOlderViewEndWithTheFirstFrameOfTheNext) {
  RemoteBuffers buffers;
  ASSERT_TRUE(buffers.push(buffer_for(10, 1)));
  ASSERT_TRUE(buffers.push(buffer_for(11, 1)));
  ASSERT_TRUE(buffers.push(buffer_for(0, 2)));
  EXPECT_EQ(buffers.consume(buffer_for(0, 2).frame)->frame, buffer_for(0, 2).frame);
  EXPECT_TRUE(buffers.empty());
}

TEST(RemoteBuffers, RejectBuffersOutOfOrderOrOverTheLimit) {
  RemoteBuffers buffers;
  ASSERT_TRUE(buffers.push(buffer_for(5)));
  EXPECT_FALSE(buffers.push(buffer_for(5)));
  EXPECT_FALSE(buffers.push(buffer_for(4)));
  for (uint64_t s = 6; !buffers.full(); ++s) ASSERT_TRUE(buffers.push(buffer_for(s)));
  EXPECT_FALSE(buffers.push(buffer_for(1000)));
}

// A frame may cross the advertisement of its buffer on the network; both ends still count the same buffers.
TEST(RemoteBuffers, DoNotKeepABufferWhoseFrameHasPassed) {
  RemoteBuffers buffers;
  EXPECT_FALSE(buffers.consume(buffer_for(40).frame));
  for (uint64_t s = 0; s <= 40 + kMaxAdvertisedBuffers; ++s) ASSERT_TRUE(buffers.push(buffer_for(s))) << s;
  EXPECT_TRUE(buffers.full());
  EXPECT_FALSE(buffers.push(buffer_for(41 + kMaxAdvertisedBuffers)));
  EXPECT_EQ(buffers.find(buffer_for(41).frame)->address, 1041U);
}

TEST(RemoteBuffers, AcceptAFrameAgainAfterItsUnsentBufferWasDropped) {
  RemoteBuffers buffers;
  ASSERT_TRUE(buffers.push(buffer_for(3)));
  (void)buffers.next_unsent();
  buffers.mark_sent();
  ASSERT_TRUE(buffers.push(buffer_for(4)));
  buffers.drop_unsent();
  EXPECT_TRUE(buffers.push(buffer_for(4)));
  EXPECT_FALSE(buffers.push(buffer_for(3))) << "that buffer was sent";
}

TEST(RemoteBuffers, AcceptAFrameAgainAfterClear) {
  RemoteBuffers buffers;
  ASSERT_TRUE(buffers.push(buffer_for(3)));
  buffers.clear();
  EXPECT_TRUE(buffers.push(buffer_for(3)));
}

TEST(RemoteBuffers, AreSentOnce) {
  RemoteBuffers buffers;
  for (uint64_t s = 0; s < 3; ++s) ASSERT_TRUE(buffers.push(buffer_for(s)));
  EXPECT_FALSE(buffers.has_sent());
  EXPECT_EQ(buffers.next_unsent()->address, 1000U);
  buffers.mark_sent();
  EXPECT_TRUE(buffers.has_sent());
  // The frame of buffer 1 arrived before the buffer was sent, so the buffer need not be sent any more.
  EXPECT_TRUE(buffers.consume(buffer_for(1).frame));
  EXPECT_FALSE(buffers.has_sent());
  EXPECT_EQ(buffers.next_unsent()->address, 1002U);
  buffers.drop_unsent();
  EXPECT_EQ(buffers.next_unsent(), nullptr);
  EXPECT_TRUE(buffers.empty());
}

TEST(RemoteBuffers, KeepSentBuffersWhenUnsentBuffersAreDropped) {
  RemoteBuffers buffers;
  for (uint64_t s = 0; s < 3; ++s) ASSERT_TRUE(buffers.push(buffer_for(s)));
  (void)buffers.next_unsent();
  buffers.mark_sent();
  buffers.drop_unsent();
  EXPECT_TRUE(buffers.has_sent());
  EXPECT_TRUE(buffers.consume(buffer_for(0).frame));
  EXPECT_TRUE(buffers.empty());
}

}  // namespace
}  // namespace sluice::transport::rdma
