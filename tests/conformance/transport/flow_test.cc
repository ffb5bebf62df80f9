// Queue limits, budgets, sleeping and waking.
#include <atomic>
#include <thread>

#include "core/clock.h"
#include "tests/conformance/transport/transport_fixture.h"

namespace sluice::transport::test {
namespace {

class TransportFlow : public TransportFixture {};

TEST_P(TransportFlow, RefusesPutWhileTheQueueIsFull) {
  rebuild({.send_queue = 5});
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(left.put_pattern(100, i).ok());
  EXPECT_EQ(left.put_pattern(100, 5), Errc::kWouldBlock);
  EXPECT_EQ(left.put_pattern(100, 5), Errc::kWouldBlock);
  EXPECT_FALSE(left.endpoint->all_sent());
  ASSERT_TRUE(poll_until([&] { return left.all_completed(); }));
  EXPECT_TRUE(left.endpoint->all_sent());
  EXPECT_TRUE(left.put_pattern(100, 5).ok());
  EXPECT_TRUE(poll_until([&] { return right.received.size() == 6; }));
}

TEST_P(TransportFlow, AcceptsAPutFromOnSentOfAFullQueue) {
  rebuild({.send_queue = 2});
  uint64_t next = 2;
  left.at_sent = [&](Cookie, Status) {
    if (next < 50) {
      EXPECT_TRUE(left.put_pattern(1000, next++).ok());
    }
  };
  ASSERT_TRUE(left.put_pattern(1000, 0).ok());
  ASSERT_TRUE(left.put_pattern(1000, 1).ok());
  EXPECT_TRUE(poll_until([&] { return right.received.size() == 50 && left.all_completed(); }));
}

TEST_P(TransportFlow, RefusesLengthsThatDoNotMatchTheHeader) {
  const Bytes payload = pattern(100, 0);
  auto header = header_for(payload, 0);
  EXPECT_EQ(left.put(header, {}, std::span(payload).first(99)), Errc::kInvalidArgument);
  EXPECT_EQ(left.put(header, extension_area(8, 0), payload), Errc::kInvalidArgument);
  header.ext_len8 = (kMaxExtensionBytes + 8) / 8;
  EXPECT_EQ(left.put(header, extension_area(kMaxExtensionBytes + 8, 0), payload), Errc::kInvalidArgument);
  EXPECT_EQ(left.accepted(), 0U);
}

TEST_P(TransportFlow, ReceivesAboutTheBudgetInOnePoll) {
  constexpr size_t kFrame = 64 * kKiB, kFrames = 60, kSmallBudget = 128 * kKiB;
  right.keep_payload = false;
  size_t next = 0, most = 0;
  const Nanos deadline = monotonic_now() + kTestTimeout;
  while (right.bytes < kFrame * kFrames && monotonic_now() < deadline) {
    while (next < kFrames && left.put_pattern(kFrame, next).ok()) ++next;
    for (int i = 0; i < 4; ++i) test_bed_.a->poll(monotonic_now(), kBudget);
    const size_t before = right.bytes;
    test_bed_.b->poll(monotonic_now(), kSmallBudget);
    most = std::max(most, right.bytes - before);
  }
  EXPECT_EQ(right.bytes, kFrame * kFrames);
  // One read, or one frame, may exceed the budget.
  EXPECT_LE(most, kSmallBudget + 256 * kKiB);
}

TEST_P(TransportFlow, WaitReturnsAtOnceWithTimeoutZero) {
  const Nanos begin = monotonic_now();
  test_bed_.a->wait(0);
  EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2);
}

TEST_P(TransportFlow, WaitReturnsAtOnceWhileCallbacksAreOutstanding) {
  poll_until([&] { return test_bed_.a->poll(monotonic_now(), kBudget) == 0; });
  left.close(Errc::kAborted);
  const Nanos begin = monotonic_now();
  test_bed_.a->wait(kTestTimeout);
  EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2);
}

TEST_P(TransportFlow, WaitReturnsAtOnceWhenTheBudgetLeftBytes) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(left.put_pattern(64 * kKiB, i).ok());
  const Nanos begin = monotonic_now();
  while (right.received.size() < 8 && monotonic_now() - begin < kTestTimeout) {
    test_bed_.a->poll(monotonic_now(), kBudget);
    test_bed_.b->poll(monotonic_now(), 1);
    if (right.received.size() < 8) test_bed_.b->wait(kTestTimeout);
  }
  EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2);
}

TEST_P(TransportFlow, WaitEndsAfterItsTimeout) {
  poll_until([&] { return test_bed_.a->poll(monotonic_now(), kBudget) == 0; });
  Nanos slept = 0;
  // A single wait may end early; the sum must reach the timeout.
  for (int i = 0; i < 100 && slept < 20 * kMillisecond; ++i) {
    const Nanos begin = monotonic_now();
    test_bed_.a->wait(20 * kMillisecond);
    slept += monotonic_now() - begin;
    test_bed_.a->poll(monotonic_now(), kBudget);
  }
  EXPECT_GE(slept, 20 * kMillisecond);
}

TEST_P(TransportFlow, WakeFromAnotherThreadEndsAWait) {
  poll_until([&] { return test_bed_.a->poll(monotonic_now(), kBudget) == 0; });
  std::thread waker([&] { test_bed_.a->wake(); });
  const Nanos begin = monotonic_now();
  test_bed_.a->wait(kTestTimeout);
  EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2);
  waker.join();
}

TEST_P(TransportFlow, WakeBeforeAWaitEndsIt) {
  poll_until([&] { return test_bed_.a->poll(monotonic_now(), kBudget) == 0; });
  const Nanos begin = monotonic_now();
  test_bed_.a->wake();
  test_bed_.a->wait(kTestTimeout);
  test_bed_.a->wake();
  test_bed_.a->poll(monotonic_now(), kBudget);
  test_bed_.a->wait(kTestTimeout);
  EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2);
}

TEST_P(TransportFlow, NoWakeIsLost) {
  constexpr int kWakes = 2000;
  std::atomic<int> given{0};
  std::atomic<int> taken{0};
  std::thread waker([&] {
    for (int i = 0; i < kWakes; ++i) {
      given.store(i + 1, std::memory_order_relaxed);
      test_bed_.a->wake();
      while (taken.load(std::memory_order_relaxed) <= i) std::this_thread::yield();
    }
  });
  const Nanos begin = monotonic_now();
  for (int seen = 0; seen < kWakes;) {
    const int now_given = given.load(std::memory_order_relaxed);
    if (now_given > seen) {
      seen = now_given;
      taken.store(seen, std::memory_order_relaxed);
      continue;
    }
    test_bed_.a->poll(monotonic_now(), kBudget);
    test_bed_.a->wait(kTestTimeout);
  }
  EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2) << "a wake was lost and the wait timed out";
  waker.join();
}

// The peer runs inside the callback, as if on another core. So its answer arrives before the poll ends.
TEST_P(TransportFlow, AnswersWithinOnePollFindFreedQueueSpace) {
  constexpr uint64_t kRounds = 500;  // many times the send queue
  right.keep_payload = left.keep_payload = false;
  right.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    EXPECT_TRUE(right.put_pattern(100, h.sequence).ok());
  };
  uint64_t rounds = 0;
  left.at_frame = [&](const wire::FrameHeader&, std::span<std::byte>) {
    if (++rounds == kRounds) return;
    ASSERT_TRUE(left.put_pattern(100, rounds).ok()) << "in round " << rounds;
    test_bed_.b->poll(monotonic_now(), kBudget);
  };
  ASSERT_TRUE(left.put_pattern(100, 0).ok());
  EXPECT_TRUE(poll_until([&] { return rounds == kRounds || testing::Test::HasFailure(); }));
  EXPECT_EQ(rounds, kRounds);
}

TEST_P(TransportFlow, TwoSleepingThreadsExchangeFrames) {
  constexpr uint64_t kRounds = 1000;
  std::atomic<bool> stop{false};
  right.keep_payload = left.keep_payload = false;
  right.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    EXPECT_TRUE(right.put_pattern(2000, h.sequence).ok());
  };
  std::thread other([&] {
    while (!stop.load()) {
      if (test_bed_.b->poll(monotonic_now(), kBudget) == 0) test_bed_.b->wait(-1);
    }
  });
  uint64_t rounds = 0;
  left.at_frame = [&](const wire::FrameHeader&, std::span<std::byte>) {
    if (++rounds < kRounds) {
      EXPECT_TRUE(left.put_pattern(2000, rounds).ok());
    }
  };
  EXPECT_TRUE(left.put_pattern(2000, 0).ok());
  const Nanos begin = monotonic_now();
  while (rounds < kRounds && monotonic_now() - begin < kTestTimeout) {
    if (test_bed_.a->poll(monotonic_now(), kBudget) == 0) test_bed_.a->wait(kTestTimeout);
  }
  EXPECT_EQ(rounds, kRounds);
  stop.store(true);
  test_bed_.b->wake();
  other.join();
}

SLUICE_OVER_ALL_TRANSPORTS(TransportFlow);

}  // namespace
}  // namespace sluice::transport::test
