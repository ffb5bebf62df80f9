#include "transport/loss_detector.h"

#include <gtest/gtest.h>

namespace sluice::transport {
namespace {

// An endpoint whose counters the test sets. It counts the calls of losses().
class FakeEndpoint final : public Endpoint {
 public:
  Status put(const wire::FrameHeader&, std::span<const std::byte>, std::span<const std::byte>,
             Cookie) noexcept override {
    return Errc::kClosed;
  }
  void close(Errc) noexcept override {}
  void shutdown() noexcept override {}
  bool idle() const noexcept override { return true; }
  const EndpointCounters& counters() const noexcept override { return sent; }
  uint64_t losses() const noexcept override { return ++samples, lost; }
  std::string_view peer() const noexcept override { return "fake"; }

  EndpointCounters sent;
  uint64_t lost = 0;
  mutable int samples = 0;
};

class LossDetectorFixture : public ::testing::Test {
 protected:
  void send(uint64_t bytes) { endpoint_.sent.payload_bytes_out += bytes; }

  FakeEndpoint endpoint_;
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
