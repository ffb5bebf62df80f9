// How many chunks ChunkScheduler has in flight, by InflightLimit or a shared limit.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/gpu_client/scheduler_test_bed.h"

namespace sluice::engine::test {
namespace {

TEST(ChunkSchedulerInflight, LimitsALaneConnectionBelowItsSlots) {
  SchedulerTestBed t({.lanes = 2, .slots = 64, .limit_inflight = true});
  TestOperation op(t, 40 * 16 * 1024);
  t.settle();
  for (FakeLane& lane : t.lanes) EXPECT_EQ(lane.waiting.size(), InflightLimit::kFirst);
  op.expect_result();
}

// The limit protects queues, which hold bytes. Chunks of zeros have few, so they are bound by the slots, and
// they leave the limit as it is for the dense chunks that follow.
TEST(ChunkSchedulerInflight, LimitsBytesInFlight) {
  constexpr uint32_t kSlots = 64, kSlotBytes = 16 * 1024;
  SchedulerTestBed t({.lanes = 1,
                      .slots = kSlots,
                      .slot_bytes = kSlotBytes,
                      .payload_crc = false,
                      .limit_inflight = true,
                      .sparse = true});
  std::vector<std::byte> zeros(size_t{2000} * kSlotBytes), result(zeros.size(), std::byte{1});
  const uint32_t op = t.start(zeros.data(), result.data(), zeros.size());
  FakeLane& lane = t.lanes[0];
  t.settle();
  EXPECT_EQ(lane.waiting.size(), InflightLimit::kFirst) << "before the first result, whose bytes are unknown";
  lane.answer();
  t.settle();
  EXPECT_EQ(lane.waiting.size(), kSlots);
  while (!lane.waiting.empty()) {
    // A link without queues: results arrive the faster, the more chunks are in flight.
    t.now += kMillisecond / static_cast<Nanos>(lane.waiting.size());
    t.scheduler->set_now(t.now);
    lane.answer();
    t.settle();
  }
  ASSERT_TRUE(t.ended(op));
  EXPECT_EQ(result, zeros);
  EXPECT_EQ(t.scheduler->inflight_limit(), InflightLimit::kFirst);
  TestOperation dense(t, size_t{40} * kSlotBytes);
  t.settle();
  EXPECT_LE(lane.waiting.size(), InflightLimit::kFirst + 1) << "the first dense chunk shows what follows";
  dense.expect_result();
}

// Rails share the links of their hosts, and so a limit that somebody else sets.
TEST(ChunkSchedulerInflight, KeepsToASharedLimit) {
  SharedInflightLimit shared(1);
  SchedulerTestBed t({.lanes = 2, .slots = 64, .limit_inflight = true, .shared_limit = &shared});
  EXPECT_FALSE(shared.take_limited());
  TestOperation op(t, 400 * 16 * 1024);
  t.settle();
  for (FakeLane& lane : t.lanes) EXPECT_EQ(lane.waiting.size(), 1u);
  EXPECT_TRUE(shared.take_limited());
  shared.set(3);
  t.lanes[0].answer();
  t.settle();
  for (FakeLane& lane : t.lanes) EXPECT_EQ(lane.waiting.size(), 3u);
  for (int i = 0; i < 300; ++i) {
    t.now += kMillisecond;
    t.scheduler->set_now(t.now);
    t.lanes[i % 2].answer();
    t.settle();
  }
  EXPECT_EQ(t.lanes[0].waiting.size(), 3u) << "no trial";
  op.expect_result();
}

// A limit for each connection would let those with small shares run ahead of the others.
TEST(ChunkSchedulerInflight, KeepsUnequalSharesWithinAWindowOfConsecutiveChunks) {
  const std::vector<uint32_t> placement{0, 1, 0, 0, 1, 0, 2, 0, 1, 0};
  SchedulerTestBed t({.lanes = 3, .slots = 64, .limit_inflight = true, .placement = placement});
  TestOperation op(t, 40 * 16 * 1024);
  t.settle();
  // Chunks 0 to 5: the limit of 2 for each of 3 connections.
  ASSERT_EQ(InflightLimit::kFirst, 2u);
  EXPECT_EQ(t.lanes[0].waiting.size(), 4u);
  EXPECT_EQ(t.lanes[1].waiting.size(), 2u);
  EXPECT_EQ(t.lanes[2].waiting.size(), 0u);
  t.lanes[0].answer();  // chunk 0: chunk 6 may follow
  t.settle();
  EXPECT_EQ(t.lanes[2].waiting.size(), 1u);
  op.expect_result();
}

// A chunk that waits for a slot counts as limited too. Otherwise no trial at W could be evaluated or started.
TEST(ChunkSchedulerInflight, InflightLimitCanReachAllSlots) {
  constexpr uint32_t kSlots = 4, kSlotBytes = 64;
  constexpr int kToRise = 3000,
                kToFall = 3000;  // results; trials at half the limit follow after all initial trials
  SchedulerTestBed t({.lanes = 1, .slots = kSlots, .slot_bytes = kSlotBytes, .limit_inflight = true});
  const TestOperation op(t, size_t{kToRise + kToFall + kSlots} * kSlotBytes);
  const auto answer_after = [&](Nanos time) {
    t.settle();
    t.now += time;
    t.scheduler->set_now(t.now);
    t.lanes[0].answer();
  };
  for (int i = 0; i < kToRise; ++i) answer_after(kMillisecond / t.scheduler->inflight_limit());
  EXPECT_EQ(t.scheduler->inflight_limit(), kSlots) << "more chunks in flight are faster";
  for (int i = 0; i < kToFall; ++i) answer_after(kMillisecond);
  EXPECT_EQ(t.scheduler->inflight_limit(), kSlots / 2) << "half as many chunks are as fast";
}

// A rank's 64 bytes that return within 50 ms, and twice as many with twice the limit.
TEST(ChunkSchedulerInflight, NoMoreIsTriedThanTheLinksCarryIn10MsAndTheRoundTrip) {
  constexpr uint32_t kSlots = 4, kSlotBytes = 64;
  constexpr int kResults = 1000;
  for (const Nanos round_trip : {Nanos{0}, kSecond}) {
    SchedulerTestBed t({.lanes = 1, .slots = kSlots, .slot_bytes = kSlotBytes, .limit_inflight = true});
    t.scheduler->set_round_trip(round_trip);
    const TestOperation op(t, size_t{kResults + kSlots} * kSlotBytes);
    for (int i = 0; i < kResults; ++i) {
      t.settle();
      t.now += 100 * kMillisecond / t.scheduler->inflight_limit();
      t.scheduler->set_now(t.now);
      t.lanes[0].answer();
    }
    EXPECT_EQ(t.scheduler->inflight_limit(), round_trip == 0 ? InflightLimit::kFirst : kSlots);
  }
}

TEST(ChunkSchedulerInflight, FlagsLossesOnTheFirstLaneConnection) {
  SchedulerTestBed t({.lanes = 2, .slots = 64, .limit_inflight = true});
  TestOperation op(t, 40 * 16 * 1024);
  t.settle();
  t.lanes[1].answer([](wire::FrameHeader& h) { h.flags |= wire::kFlagLosses; });
  t.settle();
  t.settle_answering();
  ASSERT_TRUE(op.has_ended());
  const auto flagged = [](const FakeLane& lane) {
    return std::ranges::count_if(lane.seen, [](const auto& h) { return (h.flags & wire::kFlagLosses) != 0; });
  };
  EXPECT_EQ(flagged(t.lanes[0]), 1);
  EXPECT_EQ(flagged(t.lanes[1]), 0);
}

}  // namespace
}  // namespace sluice::engine::test
