#include "gpu_client/store/transfer_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace sluice::store_client {
namespace {

using testing::ElementsAre;

Nanos later() {
  return monotonic_now() + 20 * kSecond;
}

class TransferTurnsTest : public testing::Test {
 protected:
  TransferTurnsTest() {
    for (uint32_t i = 0; i < TransferTurns::kAtOnce; ++i) taken_.push_back(*turns_.take(0));
  }
  ~TransferTurnsTest() override {
    taken_.clear();
    for (std::thread& thread : threads_) thread.join();
  }

  // Starts a thread that takes a turn, and returns when it waits.
  void start(int name) {
    const size_t before = turns_.waiting();
    threads_.emplace_back([this, name] {
      const auto turn = turns_.take(later());
      const std::lock_guard lock(mutex_);
      order_.push_back(turn ? name : -1);
    });
    while (turns_.waiting() == before) std::this_thread::yield();
  }

  TransferTurns turns_{"test"};
  std::deque<TransferTurns::Turn> taken_;
  std::mutex mutex_;
  std::vector<int> order_;
  std::vector<std::thread> threads_;
};

TEST_F(TransferTurnsTest, AFewAtOnceHaveATurn) {
  const auto refused = turns_.take(monotonic_now());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kTimeout);
  EXPECT_EQ(turns_.waiting(), 0U);
  taken_.pop_front();
  EXPECT_TRUE(turns_.take(monotonic_now()));
}

TEST_F(TransferTurnsTest, OthersWaitInTheirOrder) {
  for (int i = 0; i < 4; ++i) start(i);
  taken_.pop_front();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  EXPECT_THAT(order_, ElementsAre(0, 1, 2, 3));
}

TEST_F(TransferTurnsTest, EachHasThreadsOfItsOwn) {
  std::set<ShardThreads*> threads;
  for (TransferTurns::Turn& turn : taken_) threads.insert(&turn.threads());
  EXPECT_EQ(threads.size(), size_t{TransferTurns::kAtOnce});
  ShardThreads* const last = &taken_.front().threads();
  taken_.pop_front();
  EXPECT_EQ(&turns_.take(0)->threads(), last);
}

}  // namespace
}  // namespace sluice::store_client
