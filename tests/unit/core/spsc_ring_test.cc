#include "core/spsc_ring.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

namespace sluice {
namespace {

TEST(SpscRing, RoundsCapacityUpToAPowerOfTwo) {
  EXPECT_EQ(SpscRing<int>(0).capacity(), 2u);
  EXPECT_EQ(SpscRing<int>(2).capacity(), 2u);
  EXPECT_EQ(SpscRing<int>(3).capacity(), 4u);
  EXPECT_EQ(SpscRing<int>(1000).capacity(), 1024u);
}

TEST(SpscRing, PopsInTheOrderOfPushes) {
  SpscRing<int> ring(4);
  int out = -1;
  EXPECT_FALSE(ring.try_pop(out));
  EXPECT_EQ(out, -1);
  // Wraps more than twice, at every fill level.
  int pushed = 0;
  int popped = 0;
  for (int round = 0; round < 12; ++round) {
    const int batch = 1 + round % 4;
    for (int i = 0; i < batch; ++i) ASSERT_TRUE(ring.try_push(pushed++));
    for (int i = 0; i < batch; ++i) {
      ASSERT_TRUE(ring.try_pop(out));
      EXPECT_EQ(out, popped++);
    }
    EXPECT_FALSE(ring.try_pop(out));
  }
  EXPECT_EQ(ring.full_count(), 0u);
}

TEST(SpscRing, RefusesPushWhenFullAndCountsIt) {
  SpscRing<int> ring(2);
  ASSERT_TRUE(ring.try_push(1));
  ASSERT_TRUE(ring.try_push(2));
  EXPECT_FALSE(ring.try_push(3));
  EXPECT_FALSE(ring.try_push(4));
  EXPECT_EQ(ring.full_count(), 2u);
  int out = 0;
  ASSERT_TRUE(ring.try_pop(out));
  EXPECT_EQ(out, 1);
  EXPECT_TRUE(ring.try_push(5));
  EXPECT_EQ(ring.full_count(), 2u);
}

TEST(SpscRing, LeavesTheValueOfAFailedPushUnchanged) {
  SpscRing<std::unique_ptr<int>> ring(2);
  ASSERT_TRUE(ring.try_push(std::make_unique<int>(1)));
  ASSERT_TRUE(ring.try_push(std::make_unique<int>(2)));
  auto kept = std::make_unique<int>(3);
  EXPECT_FALSE(ring.try_push(kept));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(*kept, 3);
}

// Copies when moved, so a value that stays in a slot after a pop increases the use count.
struct CopiedOnMove {
  std::shared_ptr<int> held;
  CopiedOnMove() = default;
  explicit CopiedOnMove(std::shared_ptr<int> value) : held(std::move(value)) {}
  CopiedOnMove(const CopiedOnMove&) = default;
  CopiedOnMove& operator=(const CopiedOnMove&) noexcept = default;
};

TEST(SpscRing, ClearsASlotWhenItIsPopped) {
  SpscRing<CopiedOnMove> ring(2);
  auto value = std::make_shared<int>(7);
  {
    CopiedOnMove pushed(value);
    ASSERT_TRUE(ring.try_push(pushed));
  }
  CopiedOnMove out;
  ASSERT_TRUE(ring.try_pop(out));
  EXPECT_EQ(value.use_count(), 2);  // `value` and `out`; the ring has no copy
}

// The values are heap memory that is written before the push and read after the pop, so that ThreadSanitizer
// detects a missing release or acquire.
TEST(SpscRing, PassesEveryValueBetweenThreadsOnce) {
  constexpr uint64_t kCount = 100'000;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  SpscRing<std::unique_ptr<uint64_t>> ring(64);
  uint64_t refused = 0;
  std::thread producer([&] {
    for (uint64_t i = 0; i < kCount; ++i) {
      auto value = std::make_unique<uint64_t>(i);
      while (!ring.try_push(value)) {
        ++refused;
        if (std::chrono::steady_clock::now() > deadline) return;
        std::this_thread::yield();
      }
    }
  });
  uint64_t expected = 0;
  bool in_order = true;
  while (expected < kCount && in_order && std::chrono::steady_clock::now() < deadline) {
    std::unique_ptr<uint64_t> value;
    if (!ring.try_pop(value)) {
      std::this_thread::yield();
      continue;
    }
    in_order = *value == expected;
    ++expected;
  }
  producer.join();
  EXPECT_TRUE(in_order) << "at value " << expected - 1;
  EXPECT_EQ(expected, kCount);
  EXPECT_EQ(ring.full_count(), refused);
  std::unique_ptr<uint64_t> left;
  EXPECT_FALSE(ring.try_pop(left));
}

}  // namespace
}  // namespace sluice
