#include "gpu_client/engine/data_path/progress_thread.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/gpu_client/scheduler_test_bed.h"

namespace sluice::engine::test {
namespace {

// The data path of a session over a fake lane. A thread of the test answers every contribution.
class ProgressThreadTest : public ::testing::TestWithParam<bool>, protected ChunkScheduler::Listener {
 protected:
  ProgressThreadTest()
      : table_(1, {.slot_bytes = 16 * 1024}, 1), lane_(4, 16 * 1024), progress_loop_(end_latch_, *this) {
    ChunkScheduler::Options o;
    o.slot_bytes = 16 * 1024;
    o.placement = {0};
    o.lanes = {{.handle = 7, .slots = 4}};
    scheduler_ = std::move(ChunkScheduler::create(std::move(o), table_, progress_loop_).value());
    auto [mine, theirs] =
        network_->connect(*context_, scheduler_->lane(0), *far_, lane_, scheduler_->endpoint_options(0));
    scheduler_->lane(0).bind(*mine);
    lane_.endpoint = theirs;
    progress_loop_.attach(*scheduler_, *context_);
    EXPECT_TRUE(scheduler_->begin().ok());
    progress_thread_ = std::make_unique<ProgressThread>(progress_loop_, *scheduler_, *context_);
    EXPECT_TRUE(!GetParam() || progress_thread_->start().has_value());
    echo_ = std::thread([this] {
      while (!stop_.load()) {
        far_->poll(monotonic_now(), SIZE_MAX);
        while (answering_.load() && !lane_.waiting.empty() && lane_.endpoint != nullptr) lane_.answer();
        far_->wait(kMillisecond);
      }
    });
  }
  ~ProgressThreadTest() override {
    end_latch_.set(Errc::kClosed, "");
    progress_thread_->notify();
    EXPECT_TRUE(progress_thread_->wait([this] { return progress_loop_.is_drained(); },
                                       monotonic_now() + 10 * kSecond));
    stop_.store(true);
    far_->wake();
    echo_.join();
    progress_thread_->stop();
  }
  uint32_t submit() {
    uint32_t op = 0;
    {
      const std::lock_guard lock(submission_);
      op = table_.open({.send = in_, .recv = out_, .count = sizeof in_, .dtype = wire::DType::kU8}).value();
      progress_loop_.submit(op);
    }
    progress_thread_->notify();
    return op;
  }
  bool wait(uint32_t op, Nanos timeout) {
    return progress_thread_->wait([&] { return table_[op].state.load() == OpState::kEnded; },
                                  monotonic_now() + timeout);
  }
  void release(uint32_t op) {
    const std::lock_guard lock(submission_);
    table_.release(op);
  }
  void on_scheduler_ended(const SchedulerFailure& e) noexcept override { end_latch_.set(e.code, ""); }

  SessionEndLatch end_latch_;
  std::unique_ptr<transport::inproc::Network> network_ = std::make_unique<transport::inproc::Network>();
  OpTable table_;
  FakeLane lane_;
  ProgressLoop progress_loop_;
  std::unique_ptr<ChunkScheduler> scheduler_;
  std::unique_ptr<transport::Context> context_ = network_->make_context();
  std::unique_ptr<transport::Context> far_ = network_->make_context();
  std::unique_ptr<ProgressThread> progress_thread_;
  std::thread echo_;
  std::mutex submission_;
  std::atomic<bool> stop_{false}, answering_{true};
  std::byte in_[64]{}, out_[64]{};
};

TEST_P(ProgressThreadTest, WakesAWaiterForEachOfManyOperations) {
  for (int i = 0; i < 2000; ++i) {
    const uint32_t op = submit();
    ASSERT_TRUE(wait(op, 20 * kSecond)) << i;
    release(op);
  }
}

TEST_P(ProgressThreadTest, SupportsManyWaitingThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const uint32_t op = submit();
        EXPECT_TRUE(wait(op, 20 * kSecond));
        release(op);
      }
    });
  }
  for (auto& t : threads) t.join();
}

TEST_P(ProgressThreadTest, ReturnsAtTheDeadline) {
  answering_.store(false);
  const uint32_t op = submit();
  const Nanos before = monotonic_now();
  EXPECT_FALSE(wait(op, 30 * kMillisecond));
  EXPECT_GE(monotonic_now() - before, 30 * kMillisecond);
  answering_.store(true);
  EXPECT_TRUE(wait(op, 20 * kSecond));
}

TEST_P(ProgressThreadTest, WakesWaitersWhenTheEndLatchIsSet) {
  answering_.store(false);
  const uint32_t op = submit();
  std::thread other([&] {
    end_latch_.set(Errc::kReducerLost, "reducer lost");
    progress_thread_->notify();
    progress_thread_->signal();
  });
  EXPECT_TRUE(wait(op, 20 * kSecond));
  EXPECT_EQ(table_[op].status, Errc::kReducerLost);
  other.join();
}

// The stall begins by the time of the first positive value and is in progress at the second.
TEST_P(ProgressThreadTest, MeasuresTheLongestStall) {
  const auto longest_stall = [this](Nanos now) {
    return progress_thread_->longest_stall(table_.open_count() > 0, now);
  };
  answering_.store(false);
  const Nanos begin = monotonic_now();
  const uint32_t ops[] = {submit(), submit(), submit()};
  const auto stalled = [&] { return longest_stall(monotonic_now()) > 0; };
  while (!stalled() && monotonic_now() - begin < 20 * kSecond) EXPECT_FALSE(wait(ops[0], kMillisecond));
  const Nanos stalled_at = monotonic_now();
  EXPECT_FALSE(wait(ops[0], 30 * kMillisecond));
  const Nanos now = monotonic_now();
  EXPECT_GE(longest_stall(now), now - stalled_at);
  EXPECT_LE(longest_stall(now), now - begin);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));  // a caller that does not run the loop
  const Nanos answered_at = monotonic_now();
  answering_.store(true);
  for (const uint32_t op : ops) EXPECT_TRUE(wait(op, 20 * kSecond));
  const Nanos end = monotonic_now();
  EXPECT_GE(longest_stall(end), answered_at - stalled_at);
  EXPECT_LE(longest_stall(end), end - begin);
  EXPECT_EQ(longest_stall(end + kSecond), longest_stall(end)) << "no operation is open";
}

TEST_P(ProgressThreadTest, ReturnsCurrentCounters) {
  const uint32_t op = submit();
  ASSERT_TRUE(wait(op, 20 * kSecond));
  const transport::EndpointCounters c = progress_thread_->counters().lanes;
  EXPECT_EQ(c.payload_bytes_out, sizeof in_) << "COMMIT is not payload";
  EXPECT_EQ(c.frames_out, 2u);
  EXPECT_EQ(c.payload_bytes_in, sizeof in_);
  EXPECT_EQ(progress_thread_->operations_done(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Modes, ProgressThreadTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "OwnThread" : "CallerThread"; });

}  // namespace
}  // namespace sluice::engine::test
