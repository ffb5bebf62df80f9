#include "bench/e2e/replay/bucket_buffers.h"

#include <gtest/gtest.h>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::bench {
namespace {

std::vector<Bucket> buckets(const std::vector<uint64_t>& sizes) {
  std::vector<Bucket> all;
  for (uint64_t bytes : sizes) all.push_back({.ready_us = 0, .bytes = bytes});
  return all;
}

TEST(BucketBuffers, AreInPlaceAndDisjointWithinTheLimit) {
  const auto list = buckets({100, 64, 4, 1000});
  const BucketBuffers buffers(list, 128 + 64 + 64 + 1024);
  EXPECT_FALSE(buffers.shared());
  EXPECT_EQ(buffers.end_of_disjoint(0), list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(buffers.buffers_of(i).send, buffers.buffers_of(i).recv);
  }
  for (size_t i = 1; i < list.size(); ++i)
    EXPECT_GE(buffers.buffers_of(i).send, buffers.buffers_of(i - 1).send + list[i - 1].bytes);
  EXPECT_LE(buffers.buffers_of(3).send + list[3].bytes, buffers.buffers_of(0).send + buffers.bytes());
}

TEST(BucketBuffers, ShareMemoryWithSeparateSendAndReceiveHalves) {
  const auto list = buckets({200, 56, 1, 256, 64, 64, 64, 64, 64});
  const BucketBuffers buffers(list, 2 * 320);
  EXPECT_TRUE(buffers.shared());
  EXPECT_EQ(buffers.bytes(), 2 * 320u);
  const std::byte* const send = buffers.buffers_of(0).send;
  const std::byte* const recv = buffers.buffers_of(0).recv;
  EXPECT_TRUE(recv >= send + 320 || send >= recv + 320);
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(buffers.buffers_of(i).send - send, buffers.buffers_of(i).recv - recv);
    EXPECT_LE(buffers.buffers_of(i).send + list[i].bytes, send + 320);
  }
  EXPECT_EQ(buffers.end_of_disjoint(0), 2u);  // 256 + 64 fill the memory
  EXPECT_EQ(buffers.end_of_disjoint(2), 4u);  // 64 + 256 fill the memory
  EXPECT_EQ(buffers.end_of_disjoint(4), 9u);
}

TEST(BucketBuffers, LimitBelowTheLargestBucketIsRefused) {
  const auto list = buckets({4, 640, 4});
  EXPECT_NO_THROW(check_buffer_limit(list, 2 * 640 - 512));  // all buckets fit, in place
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
