// What a lane measures: waits for late ranks, durations of operations, bytes and busy time.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/lane_test_bed.h"

namespace sluice::test {
namespace {

const std::vector<float> kValues(10, 1.0f);

void contribute(LaneTestBed& test_bed, uint32_t rank, uint64_t sequence) {
  ASSERT_TRUE(test_bed.contribute(rank, sequence, kValues).ok());
  test_bed.settle();
}

std::vector<Nanos> waits(const LaneTestBed& test_bed) {
  std::vector<Nanos> all;
  for (uint32_t rank = 0; rank < test_bed.plan.ranks; ++rank)
    all.push_back(test_bed.session->waited_for(rank) / kMillisecond);
  return all;
}

TEST(LaneStraggler, ChargesTheLastRankTheTimeSinceTheFirst) {
  LaneTestBed test_bed(3);
  test_bed.commit_all();
  contribute(test_bed, 1, 0);
  test_bed.advance(10 * kMillisecond);
  contribute(test_bed, 0, 0);
  test_bed.advance(20 * kMillisecond);
  contribute(test_bed, 2, 0);
  EXPECT_EQ(waits(test_bed), (std::vector<Nanos>{0, 0, 30}));
  const auto& counters = test_bed.lane->counters();
  EXPECT_EQ(counters.straggler.sum_us(), 30'000u);
  // 16 us doubled 11 times is 32.8 ms.
  EXPECT_EQ(counters.straggler.bucket(11), 1u);
}

TEST(LaneStraggler, ChargesConcurrentWaitsOnce) {
  LaneTestBed test_bed(2, 4);
  test_bed.commit_all();
  for (uint64_t sequence : {0, 1, 2}) contribute(test_bed, 0, sequence);
  test_bed.advance(50 * kMillisecond);
  for (uint64_t sequence : {0, 1, 2}) contribute(test_bed, 1, sequence);
  EXPECT_EQ(waits(test_bed), (std::vector<Nanos>{0, 50}));
  EXPECT_EQ(test_bed.lane->counters().straggler.sum_us(), 150'000u);  // per chunk
}

TEST(LaneStraggler, ChargesNoTimeTwice) {
  LaneTestBed test_bed(3, 4);
  test_bed.commit_all();
  contribute(test_bed, 0, 0);
  contribute(test_bed, 0, 1);
  test_bed.advance(20 * kMillisecond);
  contribute(test_bed, 1, 0);
  contribute(test_bed, 2, 0);  // at the same time, after rank 1
  contribute(test_bed, 2, 1);
  test_bed.advance(15 * kMillisecond);
  contribute(test_bed, 1, 1);  // the wait of 35 ms includes 20 ms charged to rank 2
  EXPECT_EQ(waits(test_bed), (std::vector<Nanos>{0, 15, 20}));
}

TEST(LaneCounters, TimesOperationsFromTheFirstContributionToTheLastResult) {
  LaneTestBed test_bed(2);
  test_bed.commit_all();
  const auto operation = [&](uint64_t sequence, uint32_t rank, uint32_t op_id) {
    wire::FrameHeader h = test_bed.header(sequence, kValues.size());
    h.op_id = op_id;
    ASSERT_TRUE(test_bed.ranks[rank]->send(h, LaneTestBed::bytes(kValues)).ok());
    test_bed.settle();
  };
  const auto& counters = test_bed.lane->counters();
  const auto sum = static_cast<size_t>(wire::Op::kSum);
  const auto counted = [&] {
    uint64_t n = 0;
    const auto& durations = counters.operation_durations[sum];
    for (size_t i = 0; i < reducer::DurationHistogram::kBuckets; ++i) n += durations.bucket(i);
    return n;
  };
  for (uint64_t chunk : {0, 1}) {  // two chunks of one operation, 5 ms each, 1 ms apart
    operation(chunk, 0, 7);
    test_bed.advance(5 * kMillisecond);
    operation(chunk, 1, 7);
    test_bed.advance(kMillisecond);
  }
  EXPECT_EQ(counted(), 0u);  // the operation may have more chunks
  operation(2, 0, 8);
  test_bed.advance(40 * kMillisecond);
  operation(2, 1, 8);
  EXPECT_EQ(counted(), 1u);
  EXPECT_EQ(counters.operation_durations[sum].sum_us(), 11'000u);
  test_bed.session->end();
  EXPECT_EQ(counted(), 2u);
  EXPECT_EQ(counters.operation_durations[sum].sum_us(), 51'000u);
  EXPECT_EQ(counters.operation_durations[sum].bucket(10), 1u);  // 8.2 to 16.4 ms
}

TEST(LaneCounters, CountWorkByTypeAndOperation) {
  LaneTestBed test_bed(2);
  test_bed.commit_all();
  for (uint64_t sequence : {0, 1, 2}) {
    for (uint32_t rank : {0, 1})
      ASSERT_TRUE(
          test_bed.contribute(rank, sequence, kValues, sequence == 2 ? wire::Op::kMax : wire::Op::kSum).ok());
    test_bed.settle();
  }
  const auto& counters = test_bed.lane->counters();
  const auto& f32 = counters.folded[static_cast<size_t>(wire::DType::kF32)];
  EXPECT_EQ(f32[static_cast<size_t>(wire::Op::kSum)].get(), 2 * 2 * 40u);
  EXPECT_EQ(f32[static_cast<size_t>(wire::Op::kMax)].get(), 2 * 40u);
  EXPECT_EQ(counters.bytes_folded(), 3 * 2 * 40u);
  EXPECT_GT(counters.fold_ns.get(), 0u);
  EXPECT_EQ(counters.attached.get() - counters.detached.get(), 2u);
}

TEST(LaneCounters, CountBusyTimeFromABusyTurnToTheNextTurn) {
  LaneTestBed test_bed(2);
  test_bed.commit_all();
  const uint64_t before = test_bed.lane->counters().busy_ns.get();
  for (int i = 0; i < 3; ++i) {  // idle; the first may end an earlier busy turn
    (void)test_bed.lane->do_work(test_bed.now);
    test_bed.advance(kMillisecond);
  }
  const uint64_t idle = test_bed.lane->counters().busy_ns.get();
  EXPECT_EQ(idle, before);
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(test_bed.contribute(rank, 0, kValues).ok());
  for (const auto& far : test_bed.far) (void)far->poll(test_bed.now, kMiB);
  EXPECT_GT(test_bed.lane->do_work(test_bed.now), 0u);
  test_bed.advance(3 * kMillisecond);
  (void)test_bed.lane->do_work(test_bed.now);
  EXPECT_EQ(test_bed.lane->counters().busy_ns.get() - idle, 3'000'000u);
}

TEST(DurationHistogram, BoundsDouble) {
  reducer::DurationHistogram d;
  for (uint64_t us : {0ull, 15ull, 16ull, 31ull, 32ull, 67'108'863ull, 67'108'864ull, 10'000'000'000ull})
    d.add(us);
  EXPECT_EQ(d.bucket(0), 2u);
  EXPECT_EQ(d.bucket(1), 2u);
  EXPECT_EQ(d.bucket(2), 1u);
  EXPECT_EQ(d.bucket(reducer::DurationHistogram::kBuckets - 2), 1u);
  EXPECT_EQ(d.bucket(reducer::DurationHistogram::kBuckets - 1), 2u);
}

}  // namespace
}  // namespace sluice::test
