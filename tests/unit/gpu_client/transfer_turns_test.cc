#include "gpu_client/store/transfer_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <mutex>
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

  TransferTurns turns_;
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

TEST(TurnsOfAPool, AreThoseOfItsReducers) {
  const std::vector<config::Endpoint> first{{.host = "10.0.0.1"}, {.host = "10.0.0.2"}},
      other{{.host = "10.0.0.1"}};
  EXPECT_EQ(&turns_of(first), &turns_of(first));
  EXPECT_NE(&turns_of(first), &turns_of(other));
}

// All turns are taken when the process forks: the child does not wait for threads that it does not have.
TEST(TurnsOfAPool, AreFreeAfterAFork) {
  const std::vector<config::Endpoint> reducers{{.host = "10.0.0.3"}};
  std::deque<TransferTurns::Turn> taken;
  for (uint32_t i = 0; i < TransferTurns::kAtOnce; ++i) taken.push_back(*turns_of(reducers).pushes.take(0));
  ASSERT_FALSE(turns_of(reducers).pushes.take(0));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(turns_of(reducers).pushes.take(0) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice::store_client
