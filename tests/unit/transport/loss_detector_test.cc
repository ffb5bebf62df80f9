#include "transport/loss_detector.h"

#include <gtest/gtest.h>

#include "tests/support/fake_endpoint.h"

namespace sluice::transport {
namespace {

class LossDetectorFixture : public ::testing::Test {
 protected:
  void send(uint64_t bytes) { endpoint_.sent.payload_bytes_out += bytes; }

  sluice::test::FakeEndpoint endpoint_;
  LossDetector detector_;
};

TEST_F(LossDetectorFixture, SamplesOncePer512KiBSent) {
  detector_.start(endpoint_);
  endpoint_.samples = 0;
  for (int i = 1; i <= 8 * 10; ++i) {
    send(64 * kKiB);
    EXPECT_FALSE(detector_.has_new_losses(endpoint_));
    EXPECT_FALSE(detector_.has_new_losses(endpoint_)) << "nothing was sent since the last sample";
    ASSERT_EQ(endpoint_.samples, i / 8);
  }
}

TEST_F(LossDetectorFixture, ReportsEachLossOnce) {
  detector_.start(endpoint_);
  endpoint_.lost = 3;
  EXPECT_FALSE(detector_.has_new_losses(endpoint_)) << "too early";
  send(LossDetector::kSampleBytes);
  EXPECT_TRUE(detector_.has_new_losses(endpoint_));
  send(LossDetector::kSampleBytes);
  EXPECT_FALSE(detector_.has_new_losses(endpoint_));
  endpoint_.lost = 4;
  send(LossDetector::kSampleBytes);
  EXPECT_TRUE(detector_.has_new_losses(endpoint_));
}

TEST_F(LossDetectorFixture, IgnoresLossesBeforeItsStart) {
  endpoint_.lost = 7;
  send(10 * LossDetector::kSampleBytes);
  detector_.start(endpoint_);
  send(LossDetector::kSampleBytes - 1);
  EXPECT_FALSE(detector_.has_new_losses(endpoint_));
  EXPECT_EQ(endpoint_.samples, 1) << "start() takes a sample";
  send(1);
  EXPECT_FALSE(detector_.has_new_losses(endpoint_));
  EXPECT_EQ(endpoint_.samples, 2);
}

}  // namespace
}  // namespace sluice::transport
