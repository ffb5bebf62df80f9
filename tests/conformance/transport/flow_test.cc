// Queue limits, budgets, sleeping and waking.
#include <atomic>
#include <thread>

#include "core/clock.h"
#include "tests/conformance/transport/fixture.h"

namespace sluice::transport::test {
namespace {

class TransportFlow : public TransportTest {};

TEST_P(TransportFlow, RefusesPutWhenTheQueueIsFullAndTakesAgainAfterProgress) {
  rebuild({.send_queue = 5});
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(left.put_pattern(100, i).ok());
  EXPECT_EQ(left.put_pattern(100, 5), Errc::kWouldBlock);
  EXPECT_EQ(left.put_pattern(100, 5), Errc::kWouldBlock);
  EXPECT_FALSE(left.endpoint->idle());
  ASSERT_TRUE(drive_until([&] { return left.all_given_back(); }));
  EXPECT_TRUE(left.endpoint->idle());
  EXPECT_TRUE(left.put_pattern(100, 5).ok());
  EXPECT_TRUE(drive_until([&] { return right.received.size() == 6; }));
}

TEST_P(TransportFlow, TakesAPutFromWithinOnSentOfAFullQueue) {
  rebuild({.send_queue = 2});
  uint64_t next = 2;
  left.at_sent = [&](Cookie, Status) {
    if (next < 50) {
      EXPECT_TRUE(left.put_pattern(1000, next++).ok());
    }
  };
  ASSERT_TRUE(left.put_pattern(1000, 0).ok());
  ASSERT_TRUE(left.put_pattern(1000, 1).ok());
  EXPECT_TRUE(drive_until([&] { return right.received.size() == 50 && left.all_given_back(); }));
}

TEST_P(TransportFlow, RefusesArgumentsThatDoNotFitTheHeader) {
  const Bytes payload = pattern(100, 0);
  auto header = header_for(payload, 0);
  EXPECT_EQ(left.put(header, {}, std::span(payload).first(99)), Errc::kInvalidArgument);
  EXPECT_EQ(left.put(header, extension_area(8, 0), payload), Errc::kInvalidArgument);
  header.ext_len8 = (kMaxExtensions + 8) / 8;
  EXPECT_EQ(left.put(header, extension_area(kMaxExtensions + 8, 0), payload), Errc::kInvalidArgument);
  EXPECT_EQ(left.accepted(), 0U);
}

TEST_P(TransportFlow, ReceivesAboutTheBudgetInOnePoll) {
  constexpr size_t kFrame = 64 * kKiB, kFrames = 60, kSmallBudget = 128 * kKiB;
  right.keep_payload = false;
  size_t next = 0, most = 0;
  const Nanos deadline = monotonic_now() + kPatience;
  while (right.bytes < kFrame * kFrames && monotonic_now() < deadline) {
    while (next < kFrames && left.put_pattern(kFrame, next).ok()) ++next;
    for (int i = 0; i < 4; ++i) bed_.a->poll(monotonic_now(), kBudget);
    const size_t before = right.bytes;
    bed_.b->poll(monotonic_now(), kSmallBudget);
    most = std::max(most, right.bytes - before);
  }
  EXPECT_EQ(right.bytes, kFrame * kFrames);
  // One piece, or one frame, may run over.
  EXPECT_LE(most, kSmallBudget + 256 * kKiB);
}

TEST_P(TransportFlow, WaitReturnsAtOnceWhenAskedTo) {
  const Nanos begin = monotonic_now();
  bed_.a->wait(0);
  EXPECT_LT(monotonic_now() - begin, kPatience / 2);
}

TEST_P(TransportFlow, WaitReturnsAtOnceWhileCallbacksAreOutstanding) {
  drive_until([&] { return bed_.a->poll(monotonic_now(), kBudget) == 0; });
  left.close(Errc::kAborted);
  const Nanos begin = monotonic_now();
  bed_.a->wait(kPatience);
  EXPECT_LT(monotonic_now() - begin, kPatience / 2);
}

TEST_P(TransportFlow, WaitReturnsAtOnceWhenTheBudgetLeftSomething) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(left.put_pattern(64 * kKiB, i).ok());
  const Nanos begin = monotonic_now();
  while (right.received.size() < 8 && monotonic_now() - begin < kPatience) {
    bed_.a->poll(monotonic_now(), kBudget);
    bed_.b->poll(monotonic_now(), 1);
    if (right.received.size() < 8) bed_.b->wait(kPatience);
  }
  EXPECT_LT(monotonic_now() - begin, kPatience / 2);
}

TEST_P(TransportFlow, WaitEndsAfterItsTimeout) {
  drive_until([&] { return bed_.a->poll(monotonic_now(), kBudget) == 0; });
  Nanos slept = 0;
  // A wait may end early; several must add up.
  for (int i = 0; i < 100 && slept < 20 * kMillisecond; ++i) {
    const Nanos begin = monotonic_now();
    bed_.a->wait(20 * kMillisecond);
    slept += monotonic_now() - begin;
    bed_.a->poll(monotonic_now(), kBudget);
  }
  EXPECT_GE(slept, 20 * kMillisecond);
}

TEST_P(TransportFlow, WakeFromAnotherThreadEndsAWait) {
  drive_until([&] { return bed_.a->poll(monotonic_now(), kBudget) == 0; });
  std::thread waker([&] { bed_.a->wake(); });
  const Nanos begin = monotonic_now();
  bed_.a->wait(kPatience);
  EXPECT_LT(monotonic_now() - begin, kPatience / 2);
  waker.join();
}

TEST_P(TransportFlow, WakeBeforeTheWaitEndsItAlsoWithAPollBetween) {
  drive_until([&] { return bed_.a->poll(monotonic_now(), kBudget) == 0; });
  const Nanos begin = monotonic_now();
  bed_.a->wake();
  bed_.a->wait(kPatience);
  bed_.a->wake();
  bed_.a->poll(monotonic_now(), kBudget);
  bed_.a->wait(kPatience);
  EXPECT_LT(monotonic_now() - begin, kPatience / 2);
}

TEST_P(TransportFlow, EveryWakeIsSeen) {
  constexpr int kWakes = 2000;
  std::atomic<int> given{0};
  std::atomic<int> taken{0};
  std::thread waker([&] {
    for (int i = 0; i < kWakes; ++i) {
      given.store(i + 1, std::memory_order_relaxed);
      bed_.a->wake();
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
    bed_.a->poll(monotonic_now(), kBudget);
    bed_.a->wait(kPatience);
  }
  EXPECT_LT(monotonic_now() - begin, kPatience / 2) << "a wake was lost and the wait ran out";
  waker.join();
}

// The peer runs inside the callback, as one on another core would: its answer is there before the turn ends.
TEST_P(TransportFlow, AnswersWithinOneTurnFindTheRoomThatThePeerHasMade) {
  constexpr uint64_t kRounds = 500;  // many times the send queue
  right.keep_payload = left.keep_payload = false;
  right.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    EXPECT_TRUE(right.put_pattern(100, h.sequence).ok());
  };
  uint64_t rounds = 0;
  left.at_frame = [&](const wire::FrameHeader&, std::span<std::byte>) {
    if (++rounds == kRounds) return;
    ASSERT_TRUE(left.put_pattern(100, rounds).ok()) << "in round " << rounds;
    bed_.b->poll(monotonic_now(), kBudget);
  };
  ASSERT_TRUE(left.put_pattern(100, 0).ok());
  EXPECT_TRUE(drive_until([&] { return rounds == kRounds || testing::Test::HasFailure(); }));
  EXPECT_EQ(rounds, kRounds);
}

TEST_P(TransportFlow, TwoThreadsThatSleepExchangeFrames) {
  constexpr uint64_t kRounds = 1000;
  std::atomic<bool> stop{false};
  right.keep_payload = left.keep_payload = false;
  right.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    EXPECT_TRUE(right.put_pattern(2000, h.sequence).ok());
  };
  std::thread other([&] {
    while (!stop.load()) {
      if (bed_.b->poll(monotonic_now(), kBudget) == 0) bed_.b->wait(-1);
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
  while (rounds < kRounds && monotonic_now() - begin < kPatience) {
    if (bed_.a->poll(monotonic_now(), kBudget) == 0) bed_.a->wait(kPatience);
  }
  EXPECT_EQ(rounds, kRounds);
  stop.store(true);
  bed_.b->wake();
  other.join();
}

SLUICE_OVER_ALL_TRANSPORTS(TransportFlow);

}  // namespace
}  // namespace sluice::transport::test
