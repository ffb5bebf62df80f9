#include "gpu_client/engine/progress.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/gpu_client/fake_reducer.h"

namespace sluice::engine::test {
namespace {

// A session's moving parts over an echoing lane that has a thread of its own.
class ProgressTest : public ::testing::TestWithParam<bool>, protected Driver::Listener {
 protected:
  ProgressTest() : table_(1, 16 * 1024), lane_(4, 16 * 1024), driver_(fate_, *this) {
    Exchange::Options o;
    o.slot_bytes = 16 * 1024;
    o.placement = {0};
    o.links = {{.handle = 7, .slots = 4}};
    exchange_ = std::move(Exchange::create(std::move(o), table_, driver_).value());
    auto [mine, theirs] =
        network_->connect(*context_, exchange_->link(0), *far_, lane_, exchange_->endpoint_options(0));
    exchange_->link(0).bind(*mine);
    lane_.endpoint = theirs;
    driver_.attach(*exchange_, *context_);
    EXPECT_TRUE(exchange_->begin().ok());
    progress_ = std::make_unique<Progress>(driver_, *exchange_, *context_);
    EXPECT_TRUE(!GetParam() || progress_->start().has_value());
    echo_ = std::thread([this] {
      while (!stop_.load()) {
        far_->poll(monotonic_now(), SIZE_MAX);
        while (answering_.load() && !lane_.waiting.empty() && lane_.endpoint != nullptr) lane_.answer();
        far_->wait(kMillisecond);
      }
    });
  }
  ~ProgressTest() override {
    fate_.seal(Errc::kClosed, "");
    progress_->notify();
    EXPECT_TRUE(progress_->wait([this] { return driver_.drained(); }, monotonic_now() + 10 * kSecond));
    stop_.store(true);
    far_->wake();
    echo_.join();
    progress_->stop();
  }
  uint32_t submit() {
    uint32_t op = 0;
    {
      const std::lock_guard lock(submission_);
      op = table_.open({.send = in_, .recv = out_, .count = sizeof in_, .dtype = wire::DType::kU8}).value();
      driver_.submit(op);
    }
    progress_->notify();
    return op;
  }
  bool wait(uint32_t op, Nanos timeout) {
    return progress_->wait([&] { return table_[op].state.load() == OpState::kEnded; },
                           monotonic_now() + timeout);
  }
  void release(uint32_t op) {
    const std::lock_guard lock(submission_);
    table_.release(op);
  }
  void on_driver_ended(const Ending& e) noexcept override { fate_.seal(e.code, ""); }

  Fate fate_;
  std::unique_ptr<transport::inproc::Network> network_ = transport::inproc::make_network();
  OpTable table_;
  FakeLane lane_;
  Driver driver_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<transport::Context> context_ = network_->make_context();
  std::unique_ptr<transport::Context> far_ = network_->make_context();
  std::unique_ptr<Progress> progress_;
  std::thread echo_;
  std::mutex submission_;
  std::atomic<bool> stop_{false}, answering_{true};
  std::byte in_[64]{}, out_[64]{};
};

TEST_P(ProgressTest, WakesAWaiterForEachOfManyOperations) {
  for (int i = 0; i < 2000; ++i) {
    const uint32_t op = submit();
    ASSERT_TRUE(wait(op, 20 * kSecond)) << i;
    release(op);
  }
}

TEST_P(ProgressTest, LetsManyThreadsWaitAtOnce) {
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

TEST_P(ProgressTest, ComesBackWhenTheTimeIsOver) {
  answering_.store(false);
  const uint32_t op = submit();
  const Nanos before = monotonic_now();
  EXPECT_FALSE(wait(op, 30 * kMillisecond));
  EXPECT_GE(monotonic_now() - before, 30 * kMillisecond);
  answering_.store(true);
  EXPECT_TRUE(wait(op, 20 * kSecond));
}

TEST_P(ProgressTest, WakesWaitersWhenTheFateIsSealedElsewhere) {
  answering_.store(false);
  const uint32_t op = submit();
  std::thread other([&] {
    fate_.seal(Errc::kReducerLost, "gone");
    progress_->notify();
    progress_->signal();
  });
  EXPECT_TRUE(wait(op, 20 * kSecond));
  EXPECT_EQ(table_[op].status, Errc::kReducerLost);
  other.join();
}

TEST_P(ProgressTest, TellsCountersOfTheMoment) {
  const uint32_t op = submit();
  ASSERT_TRUE(wait(op, 20 * kSecond));
  const transport::EndpointCounters c = progress_->counters().lanes;
  EXPECT_EQ(c.payload_bytes_out, sizeof in_) << "COMMIT does not count";
  EXPECT_EQ(c.frames_out, 2u);
  EXPECT_EQ(c.payload_bytes_in, sizeof in_);
  EXPECT_EQ(progress_->operations_done(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Modes, ProgressTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "OwnThread" : "CallerDriven"; });

}  // namespace
}  // namespace sluice::engine::test
