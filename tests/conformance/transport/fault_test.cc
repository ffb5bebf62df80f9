// Effects of each kind of fault over inproc and TCP, and their reproducibility by seed.
#include <algorithm>
#include <bit>

#include "core/clock.h"
#include "tests/conformance/transport/transport_fixture.h"

namespace sluice::transport::test {
namespace {

using fault::FaultKind;
using fault::FaultPlan;

// The plan applies to context a. The pair under test is endpoint 0, and the healthy pair is endpoint 1.
class FaultFixture : public PairFixture, public testing::WithParamInterface<std::string> {
 protected:
  void build_with(FaultPlan plan, const EndpointOptions& options = {}) {
    for (RecordingHandler* h : {&left, &right, &healthy_left, &healthy_right}) *h = RecordingHandler();
    build(wrap_with_faults(make_test_bed(GetParam()), std::move(plan), {}), options);
    faults_ = &static_cast<fault::FaultContext&>(*test_bed_.a).faults();
  }

  // Polls both contexts with the time `now` until neither has had work for a while.
  void settle(Nanos now) {
    for (int quiet = 0; quiet < 20;) {
      const unsigned work = test_bed_.a->poll(now, kBudget) + test_bed_.b->poll(now, kBudget);
      quiet = work == 0 ? quiet + 1 : 0;
    }
  }

  void put(size_t frames, size_t size = 1000) {
    for (size_t i = 0; i < frames; ++i) ASSERT_TRUE(left.put_pattern(size, left.accepted()).ok());
  }

  // Expects that wait() returns when the 20 ms of a fault of `kind` have passed.
  void expect_wait_to_end_with(FaultKind kind) {
    build_with({.rules = {{.kind = kind, .nth = 0, .duration = 20 * kMillisecond}}});
    put(1);
    const Nanos begin = monotonic_now();
    while (!left.all_completed() && monotonic_now() - begin < kTestTimeout) {
      test_bed_.a->poll(monotonic_now(), kBudget);
      test_bed_.b->poll(monotonic_now(), kBudget);
      if (!left.all_completed()) test_bed_.a->wait(kTestTimeout);
    }
    EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2);
    EXPECT_GE(monotonic_now() - begin, 20 * kMillisecond);
  }

  const fault::FaultCounters* faults_ = nullptr;
};

TEST_P(FaultFixture, DropClosesTheConnectionInOrderAfterThePreviousFrame) {
  build_with({.rules = {{.kind = FaultKind::kDrop, .nth = 3}}});
  put(6);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(right.received.size(), 3U);
  EXPECT_EQ(right.closed, Errc::kClosed);
  EXPECT_EQ(left.closed, Errc::kClosed);
  EXPECT_EQ(std::ranges::count(left.sent, Status()), 3);
  EXPECT_EQ(left.sent.back(), Errc::kClosed);
  EXPECT_EQ(faults_->drops, 1U);
}

TEST_P(FaultFixture, ResetBreaksTheConnection) {
  build_with({.rules = {{.kind = FaultKind::kReset, .nth = 2}}});
  put(5);
  expect_both_closed(Errc::kReset, Errc::kReset);
  EXPECT_LE(right.received.size(), 2U);
  EXPECT_EQ(left.sent.size(), 5U);
  EXPECT_EQ(left.sent.back(), Errc::kReset);
  EXPECT_EQ(faults_->resets, 1U);
}

TEST_P(FaultFixture, DelayHoldsBackTheFrameAndAllLaterFrames) {
  build_with({.rules = {{.kind = FaultKind::kDelay, .nth = 1, .duration = 5 * kSecond}}});
  const Nanos begin = monotonic_now();
  put(4);
  settle(begin);
  EXPECT_EQ(right.received.size(), 1U);
  EXPECT_FALSE(left.endpoint->all_sent());
  settle(begin + 5 * kSecond - 1);
  EXPECT_EQ(right.received.size(), 1U);
  settle(begin + 5 * kSecond);
  ASSERT_EQ(right.received.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(right.received[i].header.sequence, i);
  EXPECT_TRUE(left.all_completed());
  EXPECT_EQ(faults_->delays, 1U);
}

TEST_P(FaultFixture, DelayedFramesCountAgainstTheQueue) {
  build_with({.rules = {{.kind = FaultKind::kDelay, .nth = 0, .duration = kSecond}}}, {.send_queue = 3});
  put(3);
  const Nanos begin = monotonic_now();
  settle(begin);
  EXPECT_EQ(left.put_pattern(1, 3), Errc::kWouldBlock);
  settle(begin + kSecond);
  EXPECT_TRUE(left.put_pattern(1, 3).ok());
}

TEST_P(FaultFixture, WaitEndsWithADelay) {
  expect_wait_to_end_with(FaultKind::kDelay);
}
TEST_P(FaultFixture, WaitEndsWithAStall) {
  expect_wait_to_end_with(FaultKind::kStall);
}

TEST_P(FaultFixture, CloseDuringADelayCompletesAllFrames) {
  build_with({.rules = {{.kind = FaultKind::kDelay, .nth = 1, .duration = 3600 * kSecond}}});
  put(4);
  settle(monotonic_now());
  left.close(Errc::kAborted);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.closed, Errc::kAborted);
  EXPECT_EQ(left.sent, (std::vector<Status>{Errc::kOk, Errc::kAborted, Errc::kAborted, Errc::kAborted}));
}

TEST_P(FaultFixture, ShutdownWaitsForDelayedFrames) {
  build_with({.rules = {{.kind = FaultKind::kDelay, .nth = 1, .duration = kSecond}}});
  put(3);
  left.shutdown();
  EXPECT_EQ(left.put_pattern(1, 3), Errc::kClosed);
  const Nanos begin = monotonic_now();
  settle(begin);
  EXPECT_FALSE(left.closed || right.closed);
  settle(begin + kSecond);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(right.received.size(), 3U);
  EXPECT_EQ(left.closed, Errc::kClosed);
}

TEST_P(FaultFixture, CorruptionFlipsOneBitAndIsDetected) {
  build_with({.rules = {{.kind = FaultKind::kCorrupt, .nth = 1}}});
  const Bytes payload = pattern(10'000, 1);
  put(1);
  ASSERT_TRUE(left.put(header_for(payload, 1), {}, payload).ok());
  EXPECT_EQ(payload, pattern(10'000, 1)) << "the buffer of the sender was changed";
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(right.received.size(), 1U);
  EXPECT_EQ(right.closed, Errc::kBadPayloadCrc);
  EXPECT_EQ(faults_->corruptions, 1U);
}

TEST_P(FaultFixture, CorruptionFlipsTheSameBitForTheSameSeed) {
  const auto run = [&](uint64_t seed) {
    build_with({.seed = seed, .rules = {{.kind = FaultKind::kCorrupt, .nth = 0}}});
    const Bytes payload = pattern(5000, 1);
    auto header = header_for(payload, 0);
    header.flags = 0;  // without CRC the corrupted frame is delivered
    header.payload_crc = 0;
    EXPECT_TRUE(left.put(header, {}, payload).ok());
    EXPECT_TRUE(poll_until([&] { return right.received.size() == 1; }));
    int flipped = 0;
    for (size_t i = 0; i < payload.size(); ++i) {
      flipped += std::popcount(std::to_integer<unsigned>(payload[i] ^ right.received[0].payload[i]));
    }
    EXPECT_EQ(flipped, 1);
    return right.received[0].payload;
  };
  const Bytes first = run(11);
  EXPECT_EQ(run(11), first);
  EXPECT_NE(run(12), first);
}

TEST_P(FaultFixture, StallStopsBothDirectionsForItsDuration) {
  build_with({.rules = {{.kind = FaultKind::kStall, .nth = 1, .duration = 5 * kSecond}}});
  const Nanos begin = monotonic_now();
  put(1);
  settle(begin);
  put(2);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(right.put_pattern(50'000, i).ok());
  settle(begin);
  EXPECT_EQ(right.received.size(), 1U);
  EXPECT_EQ(left.headers, 0U);
  settle(begin + 5 * kSecond - 1);
  EXPECT_EQ(left.headers, 0U);
  settle(begin + 5 * kSecond);
  EXPECT_EQ(right.received.size(), 3U);
  ASSERT_EQ(left.received.size(), 3U);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(left.received[i].payload, pattern(50'000, i));
  EXPECT_EQ(faults_->stalls, 1U);
}

TEST_P(FaultFixture, StallHidesTheEndOfThePeerUntilItEnds) {
  build_with({.rules = {{.kind = FaultKind::kStall, .nth = 0, .duration = kSecond}}});
  const Nanos begin = monotonic_now();
  put(1);
  ASSERT_TRUE(right.put_pattern(1000, 0).ok());
  settle(begin);
  right.close(Errc::kAborted);
  settle(begin);
  EXPECT_FALSE(left.closed.has_value());
  settle(begin + kSecond);
  EXPECT_EQ(left.received.size(), 1U);
  EXPECT_TRUE(left.closed.has_value());
  EXPECT_TRUE(left.all_completed());
}

TEST_P(FaultFixture, RefusalByTheLayerAboveClosesAfterAStall) {
  build_with({.rules = {{.kind = FaultKind::kStall, .nth = 0, .duration = kSecond}}});
  left.at_header = [](const wire::FrameHeader&) { return Status(Errc::kBadSlot); };
  const Nanos begin = monotonic_now();
  put(1);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(right.put_pattern(100, i).ok());
  settle(begin);
  settle(begin + kSecond);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.closed, Errc::kBadSlot);
  EXPECT_EQ(left.headers, 1U);
}

TEST_P(FaultFixture, CloseEndsAStall) {
  build_with({.rules = {{.kind = FaultKind::kStall, .nth = 0, .duration = 3600 * kSecond}}});
  put(2);
  ASSERT_TRUE(right.put_pattern(100, 0).ok());
  settle(monotonic_now());
  left.close(Errc::kAborted);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.closed, Errc::kAborted);
  EXPECT_EQ(left.headers, 0U);
}

TEST_P(FaultFixture, ProbabilityAppliesToTheSamePutsForTheSameSeed) {
  const auto run = [&](uint64_t seed) {
    build_with(
        {.seed = seed, .rules = {{.kind = FaultKind::kDelay, .probability = 0.2, .duration = kMillisecond}}});
    std::vector<uint64_t> hits;
    Nanos now = monotonic_now();
    for (uint64_t i = 0; i < 200; ++i, now += kSecond) {
      const uint64_t before = faults_->delays;
      EXPECT_TRUE(left.put_pattern(10, i).ok());
      if (faults_->delays > before) hits.push_back(i);
      settle(now);
      settle(now + kMillisecond);
    }
    EXPECT_EQ(right.received.size(), 200U);
    return hits;
  };
  const auto first = run(5);
  EXPECT_GT(first.size(), 10U);
  EXPECT_LT(first.size(), 90U);
  EXPECT_EQ(run(5), first);
  EXPECT_NE(run(6), first);
}

TEST_P(FaultFixture, RulesApplyOnlyToTheirEndpoint) {
  build_with({.rules = {{.kind = FaultKind::kReset, .endpoint = 7, .nth = 0}}});
  put(3);
  ASSERT_TRUE(poll_until([&] { return right.received.size() == 3; }));
  EXPECT_EQ(faults_->resets, 0U);
}

INSTANTIATE_TEST_SUITE_P(Over, FaultFixture, testing::Values("inproc", "tcp"), test_bed_label);

}  // namespace
}  // namespace sluice::transport::test
