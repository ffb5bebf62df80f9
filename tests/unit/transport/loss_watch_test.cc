#include "transport/loss_watch.h"

#include <gtest/gtest.h>

namespace sluice::transport {
namespace {

// A connection that has sent and lost what the test says, and counts the questions.
class LossyEndpoint final : public Endpoint {
 public:
  Status put(const wire::FrameHeader&, std::span<const std::byte>, std::span<const std::byte>,
             Cookie) noexcept override {
    return Errc::kClosed;
  }
  void close(Errc) noexcept override {}
  void shutdown() noexcept override {}
  bool idle() const noexcept override { return true; }
  const EndpointCounters& counters() const noexcept override { return sent; }
  uint64_t losses() const noexcept override { return ++questions, lost; }
  std::string_view peer() const noexcept override { return "a test"; }

  EndpointCounters sent;
  uint64_t lost = 0;
  mutable int questions = 0;
};

class LossWatchTest : public ::testing::Test {
 protected:
  void send(uint64_t bytes) { endpoint_.sent.payload_bytes_out += bytes; }

  LossyEndpoint endpoint_;
  LossWatch watch_;
};

TEST_F(LossWatchTest, AsksOnceIn512KiBSent) {
  watch_.begin(endpoint_);
  endpoint_.questions = 0;
  for (int i = 1; i <= 8 * 10; ++i) {
    send(64 * kKiB);
    EXPECT_FALSE(watch_.lost(endpoint_));
    EXPECT_FALSE(watch_.lost(endpoint_)) << "nothing has been sent since";
    ASSERT_EQ(endpoint_.questions, i / 8);
  }
}

TEST_F(LossWatchTest, TellsOfEachLossOnce) {
  watch_.begin(endpoint_);
  endpoint_.lost = 3;
  EXPECT_FALSE(watch_.lost(endpoint_)) << "too early";
  send(LossWatch::kAskEvery);
  EXPECT_TRUE(watch_.lost(endpoint_));
  send(LossWatch::kAskEvery);
  EXPECT_FALSE(watch_.lost(endpoint_));
  endpoint_.lost = 4;
  send(LossWatch::kAskEvery);
  EXPECT_TRUE(watch_.lost(endpoint_));
}

TEST_F(LossWatchTest, LeavesOutWhatWasLostBeforeItBegan) {
  endpoint_.lost = 7;
  send(10 * LossWatch::kAskEvery);
  watch_.begin(endpoint_);
  send(LossWatch::kAskEvery - 1);
  EXPECT_FALSE(watch_.lost(endpoint_));
  EXPECT_EQ(endpoint_.questions, 1) << "begin() is a question";
  send(1);
  EXPECT_FALSE(watch_.lost(endpoint_));
  EXPECT_EQ(endpoint_.questions, 2);
}

}  // namespace
}  // namespace sluice::transport
