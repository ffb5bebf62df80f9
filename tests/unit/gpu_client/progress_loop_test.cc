#include "gpu_client/engine/data_path/progress_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gpu_client/scheduler_test_bed.h"

namespace sluice::engine::test {
namespace {

using ::testing::HasSubstr;

// A ProgressLoop over two fake lanes. The test runs its turns with a manual clock.
class ProgressLoopTest : public ::testing::Test, protected ChunkScheduler::Listener {
 protected:
  ProgressLoopTest() : table_(2, {.slot_bytes = 16 * 1024}, 1), progress_loop_(end_latch_, *this) {
    ChunkScheduler::Options o;
    o.slot_bytes = 16 * 1024;
    o.view_hash = 5;
    o.placement = {0, 1};
    o.lanes = {{.handle = 7, .slots = 2}, {.handle = 8, .slots = 2}};
    scheduler_ = std::move(ChunkScheduler::create(std::move(o), table_, progress_loop_).value());
    for (uint32_t i = 0; i < 2; ++i) {
      lanes_.emplace_back(2, 16 * 1024);
      auto [mine, theirs] = network_->connect(*context_, scheduler_->lane(i), *far_, lanes_.back(),
                                              scheduler_->endpoint_options(i));
      scheduler_->lane(i).bind(*mine);
      lanes_.back().endpoint = theirs;
    }
    progress_loop_.attach(*scheduler_, *context_);
    EXPECT_TRUE(scheduler_->begin().ok());
  }

  uint32_t submit(Nanos deadline = 0) {
    const auto index = table_.open(
        {.send = in_, .recv = out_, .count = sizeof in_, .dtype = wire::DType::kU8, .deadline = deadline});
    progress_loop_.submit(index.value());
    return *index;
  }
  void turns(int n = 4) {
    for (int i = 0; i < n; ++i) progress_loop_.turn(now_), far_->poll(now_, SIZE_MAX);
  }
  void on_scheduler_ended(const SchedulerFailure& e) noexcept override {
    ++ends_reported_;
    session_end_ = e;
    end_latch_.set(e.code, "ended by the data path");
  }

  SessionEndLatch end_latch_;
  std::unique_ptr<transport::inproc::Network> network_ = std::make_unique<transport::inproc::Network>();
  OpTable table_;
  std::deque<FakeLane> lanes_;
  ProgressLoop progress_loop_;
  std::unique_ptr<ChunkScheduler> scheduler_;
  std::unique_ptr<transport::Context> context_ = network_->make_context();
  std::unique_ptr<transport::Context> far_ = network_->make_context();
  Nanos now_ = 100 * kSecond;
  std::byte in_[64]{}, out_[64]{};
  int ends_reported_ = 0;
  SchedulerFailure session_end_;
};

TEST_F(ProgressLoopTest, IssuesSubmissionsAndCountsEnds) {
  const uint32_t op = submit();
  turns();
  EXPECT_EQ(progress_loop_.end_count(), 0u);
  lanes_[0].answer();
  turns();
  EXPECT_EQ(table_[op].state.load(), OpState::kEnded);
  EXPECT_EQ(progress_loop_.end_count(), 1u);
  EXPECT_EQ(progress_loop_.turn(now_), 0u) << "nothing left to do";
}

TEST_F(ProgressLoopTest, EndsTheSessionWhenTheOldestOperationIsOverdue) {
  const uint32_t op = submit(now_ + kSecond);
  turns();
  EXPECT_EQ(progress_loop_.next_deadline(), now_ + kSecond);
  now_ += kSecond - 1;
  turns();
  EXPECT_EQ(ends_reported_, 0);
  now_ += 1;
  turns();
  ASSERT_EQ(ends_reported_, 1);
  EXPECT_EQ(session_end_.code, Errc::kOpTimeout);
  EXPECT_THAT(session_end_.text.data(),
              HasSubstr("operation 0 (sum of 64 u8) timed out: 0 of 1 chunks finished"));
  EXPECT_TRUE(progress_loop_.is_drained());
  EXPECT_EQ(table_[op].status, Errc::kOpTimeout);
}

TEST_F(ProgressLoopTest, WaitsWithoutLimitWithoutADeadline) {
  submit();
  turns();
  EXPECT_EQ(progress_loop_.next_deadline(), 0);
  now_ += 24 * 3600 * kSecond;
  turns();
  EXPECT_EQ(ends_reported_, 0);
}

TEST_F(ProgressLoopTest, EndsOpenOperationsWhenTheEndLatchIsSet) {
  const uint32_t op = submit();
  turns();
  end_latch_.set(Errc::kReducerLost, "ended by the heartbeat monitor");
  turns();
  EXPECT_TRUE(progress_loop_.is_drained());
  EXPECT_EQ(table_[op].status, Errc::kReducerLost);
  EXPECT_EQ(ends_reported_, 0) << "an end set by another part is not reported";
  // An operation submitted just before the end.
  const uint32_t late = submit();
  turns();
  EXPECT_EQ(table_[late].state.load(), OpState::kEnded);
  EXPECT_EQ(table_[late].status, Errc::kReducerLost);
}

// This rank's caller gave a reason of its own, and a reducer's answer to the ABORT comes first.
TEST_F(ProgressLoopTest, EndsOperationsWithTheLatchsReasonAfterAnAbort) {
  const uint32_t op = submit();
  turns();
  end_latch_.preset(Errc::kClosed, "ended by the caller");
  lanes_[0].abort(Errc::kAborted, "ended by the caller");
  turns();
  ASSERT_EQ(ends_reported_, 1);
  EXPECT_EQ(session_end_.code, Errc::kAborted);
  EXPECT_EQ(table_[op].status, Errc::kClosed);
}

TEST_F(ProgressLoopTest, WaitsForTheCauseAfterALostLane) {
  submit();
  turns();
  lanes_[1].endpoint->close(Errc::kReset);
  turns();
  EXPECT_EQ(ends_reported_, 0);
  EXPECT_EQ(progress_loop_.next_deadline(), now_ + ProgressLoop::kLaneGrace);
  now_ += ProgressLoop::kLaneGrace;
  turns();
  ASSERT_EQ(ends_reported_, 1);
  EXPECT_EQ(session_end_.code, Errc::kReducerLost);
  EXPECT_EQ(session_end_.lane, 1u);
  EXPECT_THAT(session_end_.text.data(), HasSubstr("lane connection reset"));
}

// The reducers need not finish with a rank at the same time.
TEST_F(ProgressLoopTest, IgnoresAnOrderlyCloseAfterLeave) {
  turns();
  lanes_[0].endpoint->close(Errc::kClosed);
  turns();
  progress_loop_.leave();  // may be called shortly after the close
  lanes_[1].endpoint->close(Errc::kClosed);
  turns();
  EXPECT_EQ(progress_loop_.next_deadline(), 0) << "no deadline is set";
  now_ += 2 * ProgressLoop::kLaneGrace;
  turns();
  EXPECT_EQ(ends_reported_, 0);
}

TEST_F(ProgressLoopTest, ReportsALostLaneWithAnOpenOperationAfterLeave) {
  progress_loop_.leave();
  submit();
  turns();
  lanes_[1].endpoint->close(Errc::kClosed);
  turns();
  now_ += ProgressLoop::kLaneGrace;
  turns();
  ASSERT_EQ(ends_reported_, 1);
  EXPECT_EQ(session_end_.code, Errc::kReducerLost);
}

TEST_F(ProgressLoopTest, EndsAtOnceOnADamagedFrame) {
  submit();
  turns();
  // The checksum does not match the payload.
  lanes_[0].answer([](wire::FrameHeader& h) { h.flags = wire::kFlagPayloadCrc, h.payload_crc = 12345; });
  turns();
  ASSERT_EQ(ends_reported_, 1);
  EXPECT_EQ(session_end_.code, Errc::kBadPayloadCrc);
  EXPECT_THAT(session_end_.text.data(), HasSubstr("bad_payload_crc"));
}

}  // namespace
}  // namespace sluice::engine::test
