// Orderly shutdown: all accepted frames arrive, then both ends close.
#include "tests/conformance/transport/transport_fixture.h"

namespace sluice::transport::test {
namespace {

class TransportShutdown : public TransportFixture {};

TEST_P(TransportShutdown, DeliversEverythingThenCloses) {
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(left.put_pattern(kMiB, i).ok());
  left.shutdown();
  EXPECT_EQ(left.put_pattern(1, 16), Errc::kClosed);
  expect_both_closed(Errc::kClosed, Errc::kClosed);
  EXPECT_EQ(right.received.size(), 16U);
  EXPECT_EQ(left.sent, std::vector<Status>(16, Errc::kOk));
}

TEST_P(TransportShutdown, OfAnIdleEndpointCloses) {
  left.shutdown();
  left.shutdown();
  expect_both_closed(Errc::kClosed, Errc::kClosed);
}

TEST_P(TransportShutdown, DeliversTheAcceptedFramesOfThePeer) {
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(right.put_pattern(kMiB, i).ok());
  left.shutdown();
  expect_both_closed(Errc::kClosed, Errc::kClosed);
  EXPECT_EQ(left.received.size(), 16U);
  EXPECT_EQ(right.sent, std::vector<Status>(16, Errc::kOk));
}

TEST_P(TransportShutdown, OfBothSidesDeliversBothWays) {
  for (uint64_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(left.put_pattern(kMiB, i).ok());
    ASSERT_TRUE(right.put_pattern(kMiB + 1, i).ok());
  }
  left.shutdown();
  right.shutdown();
  expect_both_closed(Errc::kClosed, Errc::kClosed);
  EXPECT_EQ(left.received.size(), 12U);
  EXPECT_EQ(right.received.size(), 12U);
}

TEST_P(TransportShutdown, FromWithinOnFrameSendsTheAnswerFirst) {
  right.at_frame = [&](const wire::FrameHeader&, std::span<std::byte>) {
    EXPECT_TRUE(right.put_pattern(200'000, 5).ok());
    right.shutdown();
  };
  ASSERT_TRUE(left.put_pattern(100, 0).ok());
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  ASSERT_EQ(left.received.size(), 1U);
  EXPECT_EQ(left.received[0].payload, pattern(200'000, 5));
  EXPECT_EQ(left.closed, Errc::kClosed);
}

TEST_P(TransportShutdown, FromWithinOnSentOfTheLastFrame) {
  left.at_sent = [&](Cookie c, Status) {
    if (c == 2) left.shutdown();
  };
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(left.put_pattern(500, i).ok());
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(right.received.size(), 3U);
  EXPECT_EQ(left.closed, Errc::kClosed);
}

TEST_P(TransportShutdown, IsEndedByClose) {
  rebuild({.send_queue = 20});
  for (uint64_t i = 0; i < 12; ++i) ASSERT_TRUE(left.put_pattern(kMiB, i).ok());
  left.shutdown();
  left.close(Errc::kTimeout);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.closed, Errc::kTimeout);
  EXPECT_EQ(left.sent.size(), 12U);
}

SLUICE_OVER_ALL_TRANSPORTS(TransportShutdown);

}  // namespace
}  // namespace sluice::transport::test
