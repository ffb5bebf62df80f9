#include "bench/e2e/bucket_buffers.h"

#include <gtest/gtest.h>

#include "bench/e2e/exit_codes.h"

namespace sluice::bench {
namespace {

std::vector<Bucket> buckets(const std::vector<uint64_t>& sizes) {
  std::vector<Bucket> all;
  for (uint64_t bytes : sizes) all.push_back({.ready_us = 0, .bytes = bytes});
  return all;
}

TEST(BucketBuffers, AreInPlaceAndApartWhereThereIsRoom) {
  const auto list = buckets({100, 64, 4, 1000});
  const BucketBuffers buffers(list, 128 + 64 + 64 + 1024);
  EXPECT_FALSE(buffers.shared());
  EXPECT_EQ(buffers.end_of_distinct(0), list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(buffers.place(i).send, buffers.place(i).recv);
  }
  for (size_t i = 1; i < list.size(); ++i)
    EXPECT_GE(buffers.place(i).send, buffers.place(i - 1).send + list[i - 1].bytes);
  EXPECT_LE(buffers.place(3).send + list[3].bytes, buffers.place(0).send + buffers.bytes());
}

TEST(BucketBuffers, ShareWithoutReceivingIntoWhatIsSent) {
  const auto list = buckets({200, 56, 1, 256, 64, 64, 64, 64, 64});
  const BucketBuffers buffers(list, 2 * 320);
  EXPECT_TRUE(buffers.shared());
  EXPECT_EQ(buffers.bytes(), 2 * 320u);
  const std::byte* const send = buffers.place(0).send;
  const std::byte* const recv = buffers.place(0).recv;
  EXPECT_TRUE(recv >= send + 320 || send >= recv + 320);
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(buffers.place(i).send - send, buffers.place(i).recv - recv);
    EXPECT_LE(buffers.place(i).send + list[i].bytes, send + 320);
  }
  EXPECT_EQ(buffers.end_of_distinct(0), 2u);  // 256 + 64 fill it
  EXPECT_EQ(buffers.end_of_distinct(2), 4u);  // so do 64 + 256
  EXPECT_EQ(buffers.end_of_distinct(4), 9u);
}

TEST(BucketBuffers, ALimitBelowTheLargestBucketIsRefused) {
  const auto list = buckets({4, 640, 4});
  EXPECT_NO_THROW(check_buffer_limit(list, 2 * 640 - 512));  // all of it, in place
  const auto many = buckets({640, 640, 640});
  EXPECT_NO_THROW(check_buffer_limit(many, 2 * 640));
  try {
    check_buffer_limit(many, 2 * 640 - 1);
    FAIL();
  } catch (const Failure& e) {
    EXPECT_EQ(e.code(), kExitUsage);
    EXPECT_NE(std::string(e.what()).find("1280"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace sluice::bench
