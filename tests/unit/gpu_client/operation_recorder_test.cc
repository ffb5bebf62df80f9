#include "gpu_client/engine/data_path/operation_recorder.h"

#include <gtest/gtest.h>

#include "gpu_client/engine/trace/time_parts.h"
#include "tests/unit/gpu_client/scheduler_test_bed.h"

namespace sluice::engine::test {
namespace {

struct StoredRecords final : OperationObserver {
  void on_reducer_added(std::string_view name) noexcept override { reducers.emplace_back(name); }
  void on_operation_ended(const OperationRecord& o, std::span<const std::byte> result) noexcept override {
    operations.push_back(o);
    results.emplace_back(result.begin(), result.end());
  }
  void on_chunk_ended(const ChunkTiming& c) noexcept override { chunks.push_back(c); }
  void on_stall_ended(const StallRecord& s) noexcept override { stalls.push_back(s); }
  void on_view_changed(const ViewChangeRecord& v) noexcept override { views.push_back(v); }

  std::vector<std::string> reducers;
  std::vector<OperationRecord> operations;
  std::vector<std::vector<std::byte>> results;
  std::vector<ChunkTiming> chunks;
  std::vector<StallRecord> stalls;
  std::vector<ViewChangeRecord> views;
};

Nanos sum(const TimeParts& p) {
  return p.in_window + p.waiting + p.adding + p.on_wire;
}

constexpr Nanos kAdding = 4 * 1'000'000 / 20;  // of 4 ranks with 1 MB each, at 20 GB/s

RoundTrip round_trip() {
  return {.duration = 10 * kMillisecond, .shortest = 4 * kMillisecond, .bytes = 1'000'000, .ranks = 4};
}

TEST(TimeParts, OfARankThatWaits) {
  RoundTrip r = round_trip();
  r.lag = 5 * kMillisecond;
  const TimeParts expected{
      .waiting = 5 * kMillisecond, .adding = kAdding, .on_wire = 5 * kMillisecond - kAdding};
  EXPECT_EQ(divide_round_trip(r), expected);
}

// The lag counts from the first rank, and this rank contributed later than that one.
TEST(TimeParts, WaitIsAtMostTheTimeAboveTheShortestRoundTrip) {
  RoundTrip r = round_trip();
  r.lag = 9 * kMillisecond;
  EXPECT_EQ(divide_round_trip(r).waiting, 6 * kMillisecond);
  r.duration = r.shortest;
  EXPECT_EQ(divide_round_trip(r).waiting, 0);
}

TEST(TimeParts, TheLastRankDoesNotWait) {
  RoundTrip r = round_trip();
  r.lag = 5 * kMillisecond;
  r.this_is_last = true;
  const TimeParts expected{.adding = kAdding, .on_wire = 10 * kMillisecond - kAdding};
  EXPECT_EQ(divide_round_trip(r), expected);
}

TEST(TimeParts, AddingIsAtMostTheRest) {
  RoundTrip r = round_trip();
  r.duration = r.shortest = kAdding / 2;
  EXPECT_EQ(divide_round_trip(r), TimeParts{.adding = kAdding / 2});
}

TEST(TimeParts, OfAnOperationAddUpToItsDuration) {
  const TimeParts sums{.in_window = 30, .waiting = 20, .adding = 10, .on_wire = 40};
  EXPECT_EQ(scale_parts(sums, 50), (TimeParts{.in_window = 15, .waiting = 10, .adding = 5, .on_wire = 20}));
  EXPECT_EQ(sum(scale_parts(sums, 33)), 33);
  EXPECT_EQ(scale_parts({}, 50), TimeParts{.in_window = 50});
}

class OperationRecorderTest : public ::testing::Test {
 protected:
  StoredRecords records_;
};

TEST_F(OperationRecorderTest, RecordsAnOperationAndItsChunks) {
  SchedulerTestBed test_bed({.lanes = 2, .slots = 2, .slot_bytes = 64, .rank = 1, .observer = &records_});
  test_bed.lanes[1].info = {.last_rank = 3, .lag_us = 70};
  EXPECT_EQ(records_.reducers, (std::vector<std::string>{"reducer 0", "reducer 1"}));

  TestOperation operation(test_bed, 1000);
  const uint64_t handle = test_bed.table.handle_of(operation.index());
  test_bed.settle();
  EXPECT_TRUE(records_.operations.empty());
  operation.expect_result();

  ASSERT_EQ(records_.operations.size(), 1u);
  const OperationRecord& o = records_.operations.front();
  EXPECT_EQ(o.handle, handle);
  EXPECT_EQ(o.bytes, 1000u);
  EXPECT_EQ(o.status, Errc::kOk);
  EXPECT_EQ(o.chunks, test_bed.table[operation.index()].chunk_count);
  EXPECT_EQ(o.reducers, 2u);
  EXPECT_EQ(o.last_rank, 3u);
  EXPECT_EQ(o.last_rank_lag_us, 70u);
  EXPECT_GT(o.issued, 0);
  EXPECT_LE(o.issued, o.first_put);
  EXPECT_LE(o.first_put, o.first_result);
  EXPECT_LT(o.first_result, o.last_put) << "4 slots, and the last chunk needs a result first";
  EXPECT_LE(o.last_put, o.done);
  EXPECT_EQ(sum(o.parts), o.done - o.issued);
  EXPECT_GT(o.parts.in_window, 0);

  ASSERT_EQ(records_.chunks.size(), o.chunks);
  uint64_t bytes = 0;
  for (const ChunkTiming& c : records_.chunks) {
    EXPECT_EQ(c.op_id, o.op_id);
    EXPECT_EQ(c.reducer, c.lane);
    EXPECT_EQ(c.last_rank, c.lane == 1 ? 3u : 0u);
    EXPECT_LE(c.put, c.result);
    EXPECT_EQ(sum(c.parts), c.result - o.issued);
    bytes += c.bytes;
  }
  EXPECT_EQ(bytes, 1000u);
}

// One entry of the table serves both operations.
TEST_F(OperationRecorderTest, RecordsTheNextOperationOfTheSameEntry) {
  SchedulerTestBed test_bed({.lanes = 1, .slot_bytes = 64, .observer = &records_});
  for (int i = 0; i < 2; ++i) {
    TestOperation operation(test_bed, 100);
    operation.expect_result();
    operation.release();
  }
  ASSERT_EQ(records_.operations.size(), 2u);
  EXPECT_NE(records_.operations[0].handle, records_.operations[1].handle);
  EXPECT_EQ(records_.operations[1].op_id, 1u);
  EXPECT_EQ(records_.operations[1].chunks, records_.operations[0].chunks);
  EXPECT_GE(records_.operations[1].first_put, records_.operations[0].done);
}

// The record of results depends on both.
TEST_F(OperationRecorderTest, ReportsTheResultAndTheOldestOpenOperation) {
  SchedulerTestBed test_bed({.lanes = 2, .slots = 4, .slot_bytes = 64, .observer = &records_});
  TestOperation first(test_bed, 64);
  TestOperation second(test_bed, 48);
  test_bed.settle();
  ASSERT_EQ(test_bed.lanes[0].waiting.size(), 1u);
  ASSERT_EQ(test_bed.lanes[1].waiting.size(), 1u) << "the operations are on different lanes";
  const bool second_is_on_lane_1 = test_bed.lanes[1].waiting[0].op_id == 1;
  test_bed.lanes[second_is_on_lane_1 ? 1 : 0].answer();
  test_bed.settle();
  ASSERT_EQ(records_.operations.size(), 1u);
  EXPECT_EQ(records_.operations[0].op_id, 1u);
  EXPECT_EQ(records_.operations[0].oldest_open, 0u);
  first.expect_result();
  second.expect_result();
  ASSERT_EQ(records_.operations.size(), 2u);
  EXPECT_EQ(records_.operations[1].op_id, 0u);
  EXPECT_EQ(records_.operations[1].oldest_open, 2u) << "both have ended";
  EXPECT_EQ(records_.operations[1].count, 64u);
  EXPECT_EQ(records_.results[0], second.result(0, 48));
  EXPECT_EQ(records_.results[1], first.result(0, 64));
}

TEST_F(OperationRecorderTest, IgnoresARankOutsideTheSession) {
  SchedulerTestBed test_bed({.lanes = 1, .slot_bytes = 64, .observer = &records_});
  test_bed.lanes[0].info = {.last_rank = SchedulerTestBed::kRanks, .lag_us = 70};
  TestOperation operation(test_bed, 64);
  operation.expect_result();
  ASSERT_EQ(records_.operations.size(), 1u);
  EXPECT_EQ(records_.operations[0].last_rank, 0u);
  EXPECT_EQ(records_.operations[0].last_rank_lag_us, 0u);
}

TEST_F(OperationRecorderTest, RecordsAnOperationThatFails) {
  SchedulerTestBed test_bed({.lanes = 1, .slots = 1, .slot_bytes = 64, .observer = &records_});
  TestOperation operation(test_bed, 1000);
  test_bed.settle();
  test_bed.scheduler->end(Errc::kAborted);
  test_bed.settle();
  test_bed.scheduler->fail_open_operations(Errc::kAborted);
  ASSERT_EQ(records_.operations.size(), 1u);
  const OperationRecord& o = records_.operations.front();
  EXPECT_EQ(o.status, Errc::kAborted);
  EXPECT_EQ(o.chunks, 0u);
  EXPECT_EQ(o.first_result, 0);
  EXPECT_EQ(o.parts, TimeParts{.in_window = o.done - o.issued});
  EXPECT_EQ(o.oldest_open, 1u);
  EXPECT_TRUE(records_.results[0].empty());
}

// The chunk is put again on a new endpoint; its time counts from the first put.
TEST_F(OperationRecorderTest, CountsAResumedChunkFromItsFirstPut) {
  SchedulerTestBed test_bed(
      {.lanes = 1, .slots = 2, .slot_bytes = 64, .fault_tolerant = true, .observer = &records_});
  TestOperation operation(test_bed, 64);
  test_bed.settle();
  test_bed.lanes[0].endpoint->close(Errc::kReset);
  test_bed.settle();
  EXPECT_EQ(test_bed.lost_lane, 0u);
  FakeLane& lane = test_bed.connect(0, 2, 64);
  const Nanos broken = monotonic_now();
  ASSERT_TRUE(test_bed.scheduler->lane(0).resume().ok());
  test_bed.settle();
  lane.ack(0);
  operation.expect_result();
  ASSERT_EQ(records_.chunks.size(), 1u);
  EXPECT_LT(records_.chunks[0].put, broken);
  EXPECT_GE(records_.chunks[0].result, broken);
}

TEST_F(OperationRecorderTest, ShortensTheReasonOfAStall) {
  SchedulerTestBed test_bed({.lanes = 1, .observer = &records_});
  test_bed.recorder->report_stall(5, 9, std::string(1000, 'x'));
  ASSERT_EQ(records_.stalls.size(), 1u);
  EXPECT_EQ(records_.stalls[0].end - records_.stalls[0].begin, 4);
  EXPECT_EQ(std::string(records_.stalls[0].reason.data()), std::string(159, 'x'));
}

}  // namespace
}  // namespace sluice::engine::test
