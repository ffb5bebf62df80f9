// Who is charged for which wait, and what a lane counts of its work.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/lane_rig.h"

namespace sluice::test {
namespace {

const std::vector<float> kValues(10, 1.0f);

void contribute(LaneRig& rig, uint32_t rank, uint64_t sequence) {
  ASSERT_TRUE(rig.contribute(rank, sequence, kValues).ok());
  rig.settle();
}

std::vector<Nanos> waits(const LaneRig& rig) {
  std::vector<Nanos> all;
  for (uint32_t rank = 0; rank < rig.plan.ranks; ++rank)
    all.push_back(rig.session->waited_for(rank) / kMillisecond);
  return all;
}

TEST(LaneStraggler, TheLastIsChargedTheTimeSinceTheFirst) {
  LaneRig rig(3);
  rig.commit_all();
  contribute(rig, 1, 0);
  rig.advance(10 * kMillisecond);
  contribute(rig, 0, 0);
  rig.advance(20 * kMillisecond);
  contribute(rig, 2, 0);
  EXPECT_EQ(waits(rig), (std::vector<Nanos>{0, 0, 30}));
  const auto& counters = rig.lane->counters();
  EXPECT_EQ(counters.straggler.sum_us(), 30'000u);
  // 16 us doubled 11 times is 32.8 ms.
  EXPECT_EQ(counters.straggler.cell(11), 1u);
}

TEST(LaneStraggler, ChunksThatWaitSideBySideAreOneWait) {
  LaneRig rig(2, 4);
  rig.commit_all();
  for (uint64_t sequence : {0, 1, 2}) contribute(rig, 0, sequence);
  rig.advance(50 * kMillisecond);
  for (uint64_t sequence : {0, 1, 2}) contribute(rig, 1, sequence);
  EXPECT_EQ(waits(rig), (std::vector<Nanos>{0, 50}));
  EXPECT_EQ(rig.lane->counters().straggler.sum_us(), 150'000u);  // of each chunk
}

TEST(LaneStraggler, NoTimeIsChargedTwice) {
  LaneRig rig(3, 4);
  rig.commit_all();
  contribute(rig, 0, 0);
  contribute(rig, 0, 1);
  rig.advance(20 * kMillisecond);
  contribute(rig, 1, 0);
  contribute(rig, 2, 0);  // in the same turn's time: it came last
  contribute(rig, 2, 1);
  rig.advance(15 * kMillisecond);
  contribute(rig, 1, 1);  // waited for 35 ms, of which 20 are rank 2's
  EXPECT_EQ(waits(rig), (std::vector<Nanos>{0, 15, 20}));
}

TEST(LaneStraggler, AnOperationTakesFromItsFirstContributionToItsLastResult) {
  LaneRig rig(2);
  rig.commit_all();
  const auto operation = [&](uint64_t sequence, uint32_t rank, uint32_t op_id) {
    wire::FrameHeader h = rig.header(sequence, kValues.size());
    h.op_id = op_id;
    ASSERT_TRUE(rig.ranks[rank]->send(h, LaneRig::bytes(kValues)).ok());
    rig.settle();
  };
  const auto& counters = rig.lane->counters();
  const auto sum = static_cast<size_t>(wire::Op::kSum);
  const auto counted = [&] {
    uint64_t n = 0;
    for (size_t i = 0; i < reducer::Durations::kCells; ++i) n += counters.operation_durations[sum].cell(i);
    return n;
  };
  for (uint64_t chunk : {0, 1}) {  // two of one operation, 5 ms each and 1 ms between
    operation(chunk, 0, 7);
    rig.advance(5 * kMillisecond);
    operation(chunk, 1, 7);
    rig.advance(kMillisecond);
  }
  EXPECT_EQ(counted(), 0u);  // more of it may come
  operation(2, 0, 8);
  rig.advance(40 * kMillisecond);
  operation(2, 1, 8);
  EXPECT_EQ(counted(), 1u);
  EXPECT_EQ(counters.operation_durations[sum].sum_us(), 11'000u);
  rig.session->end();
  EXPECT_EQ(counted(), 2u);
  EXPECT_EQ(counters.operation_durations[sum].sum_us(), 51'000u);
  EXPECT_EQ(counters.operation_durations[sum].cell(10), 1u);  // 8.2 to 16.4 ms
}

TEST(LaneStraggler, WorkIsCountedByTypeAndOperation) {
  LaneRig rig(2);
  rig.commit_all();
  for (uint64_t sequence : {0, 1, 2}) {
    for (uint32_t rank : {0, 1})
      ASSERT_TRUE(
          rig.contribute(rank, sequence, kValues, sequence == 2 ? wire::Op::kMax : wire::Op::kSum).ok());
    rig.settle();
  }
  const auto& counters = rig.lane->counters();
  const auto& f32 = counters.folded[static_cast<size_t>(wire::DType::kF32)];
  EXPECT_EQ(f32[static_cast<size_t>(wire::Op::kSum)].get(), 2 * 2 * 40u);
  EXPECT_EQ(f32[static_cast<size_t>(wire::Op::kMax)].get(), 2 * 40u);
  EXPECT_EQ(counters.bytes_folded(), 3 * 2 * 40u);
  EXPECT_GT(counters.fold_ns.get(), 0u);
  EXPECT_EQ(counters.attached.get() - counters.detached.get(), 2u);
}

TEST(LaneStraggler, ALaneIsBusyFromABusyTurnToTheNext) {
  LaneRig rig(2);
  rig.commit_all();
  const uint64_t before = rig.lane->counters().busy_ns.get();
  for (int i = 0; i < 3; ++i) {  // idle, but for the first, which may end a busy one of before
    (void)rig.lane->do_work(rig.now);
    rig.advance(kMillisecond);
  }
  const uint64_t idle = rig.lane->counters().busy_ns.get();
  EXPECT_EQ(idle, before);
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(rig.contribute(rank, 0, kValues).ok());
  for (const auto& far : rig.far) (void)far->poll(rig.now, kMiB);
  EXPECT_GT(rig.lane->do_work(rig.now), 0u);
  rig.advance(3 * kMillisecond);
  (void)rig.lane->do_work(rig.now);
  EXPECT_EQ(rig.lane->counters().busy_ns.get() - idle, 3'000'000u);
}

TEST(Durations, CellsDouble) {
  reducer::Durations d;
  for (uint64_t us : {0ull, 15ull, 16ull, 31ull, 32ull, 67'108'863ull, 67'108'864ull, 10'000'000'000ull})
    d.add(us);
  EXPECT_EQ(d.cell(0), 2u);
  EXPECT_EQ(d.cell(1), 2u);
  EXPECT_EQ(d.cell(2), 1u);
  EXPECT_EQ(d.cell(reducer::Durations::kCells - 2), 1u);
  EXPECT_EQ(d.cell(reducer::Durations::kCells - 1), 2u);
}

}  // namespace
}  // namespace sluice::test
