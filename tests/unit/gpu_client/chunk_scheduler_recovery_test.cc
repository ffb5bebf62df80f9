// ChunkScheduler when connections break and views change: the worker's side of protocol.md section 11.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpu_client/engine/data_path/chunk_scheduler.h"
#include "tests/unit/gpu_client/scheduler_test_bed.h"

namespace sluice::engine::test {
namespace {

constexpr uint32_t kSlots = 4;
constexpr uint32_t kChunk = 16 * 1024;
constexpr auto kShape = SchedulerTestBed::Shape{
    .lanes = 2, .slots = kSlots, .slot_bytes = kChunk, .fault_tolerant = true, .placement = {}};

std::vector<uint64_t> sequences(const std::vector<wire::FrameHeader>& headers) {
  std::vector<uint64_t> s;
  for (const auto& h : headers) s.push_back(h.sequence);
  return s;
}

std::vector<uint64_t> chunks(const std::vector<wire::FrameHeader>& headers) {
  std::vector<uint64_t> q;
  for (const auto& h : headers) q.push_back(h.chunk);
  return q;
}

TestOperation start_chunks(SchedulerTestBed& t, size_t chunk_count, bool in_place = false) {
  return {t, chunk_count * kChunk, in_place};
}

// Reconnects a lane connection and waits until the reducer has received RESUME.
FakeLane& resume_lane(SchedulerTestBed& t, uint32_t index) {
  FakeLane& again = t.connect(index, kSlots, kChunk);
  EXPECT_TRUE(t.scheduler->lane(index).resume().ok());
  t.settle();
  return again;
}

// The header of the result for a contribution.
wire::FrameHeader result_header(wire::FrameHeader contribution) {
  contribution.type = wire::FrameType::kResult;
  contribution.flags = 0;
  contribution.ext_len8 = 0;
  return contribution;
}

void break_lane(SchedulerTestBed& t, uint32_t index, FakeLane& lane) {
  lane.endpoint->close(Errc::kReset);
  t.settle();
  ASSERT_EQ(t.lost_lane, index);
  ASSERT_FALSE(t.scheduler->lane(index).is_bound());
}

TEST(ChunkSchedulerResume, ResendsExactlyWhatTheReducerLacks) {
  for (const bool in_place : {false, true}) {
    for (uint64_t held = 1; held <= kSlots + 1; ++held) {
      SCOPED_TRACE(held);
      SchedulerTestBed t(kShape);
      TestOperation op = start_chunks(t, 40, in_place);
      t.settle();
      t.lanes[0].answer();  // one result is here, and one more contribution in flight
      t.settle();
      break_lane(t, 0, t.lanes[0]);
      EXPECT_EQ(t.ends_reported, 0);

      FakeLane& again = resume_lane(t, 0);
      EXPECT_EQ(again.resume.results_held, 1u);
      EXPECT_EQ(again.resume.incarnation, 99u);
      EXPECT_TRUE(again.seen.empty()) << "nothing is sent before RESUME_ACK";
      again.ack(held);
      t.settle();
      EXPECT_EQ(t.resumed, 1);
      std::vector<uint64_t> expected;
      for (uint64_t s = held; s < kSlots + 1; ++s) expected.push_back(s);
      EXPECT_EQ(sequences(again.seen), expected);
      for (const auto& h : again.seen) EXPECT_TRUE((h.flags & wire::kFlagResent) != 0);
    }
  }
}

TEST(ChunkSchedulerResume, CompletesWithCorrectResults) {
  for (const bool in_place : {false, true}) {
    SchedulerTestBed t(kShape);
    TestOperation op = start_chunks(t, 40, in_place);
    t.settle();
    break_lane(t, 0, t.lanes[0]);
    FakeLane& again = resume_lane(t, 0);
    again.ack(0);
    op.expect_result();
  }
}

TEST(ChunkSchedulerResume, RejectsImpossibleCounts) {
  for (const uint64_t held : {uint64_t{0}, uint64_t{kSlots + 2}, ~uint64_t{0}}) {
    SchedulerTestBed t(kShape);
    TestOperation op = start_chunks(t, 40);
    t.settle();
    t.lanes[0].answer();
    t.settle();
    break_lane(t, 0, t.lanes[0]);
    FakeLane& again = resume_lane(t, 0);
    again.ack(held);
    t.lost_reason = Errc::kOk;
    t.settle();
    EXPECT_EQ(t.lost_reason, Errc::kBadSequence) << held;
    EXPECT_EQ(t.ends_reported, 0) << "a failure closes the connection and does not end the session";
  }
}

TEST(ChunkSchedulerResume, TreatsABadResultAsABrokenConnection) {
  SchedulerTestBed t(kShape);
  TestOperation op = start_chunks(t, 40);
  t.settle();
  t.lanes[0].answer([](wire::FrameHeader& h) { h.chunk += 2; });
  t.settle();
  EXPECT_EQ(t.lost_reason, Errc::kBadField);
  EXPECT_EQ(t.ends_reported, 0);
  EXPECT_EQ(t.scheduler->last_failure().lane, 0u);
}

// Loses the second of two reducers, so that lane connection 0 gets all chunks.
void lose_second(SchedulerTestBed& t) {
  break_lane(t, 1, t.lanes[1]);
  t.scheduler->stop();
  t.settle();
}

void restart(SchedulerTestBed& t, uint64_t base) {
  ASSERT_TRUE(t.scheduler->is_quiescent());
  t.scheduler->restart({.version = 1, .hash = 0xabcdef0011223344, .base = base}, {0});
}

TEST(ChunkSchedulerViewChange, MovesTheChunksOfALostReducer) {
  for (const bool in_place : {false, true}) {
    SchedulerTestBed t(kShape);
    TestOperation op = start_chunks(t, 40, in_place);
    t.settle();
    lose_second(t);
    t.lanes[0].answer();
    t.settle();
    EXPECT_EQ(t.lanes[0].seen.size(), size_t{kSlots}) << "the scheduler is stopped";
    EXPECT_EQ(t.scheduler->first_unfinished(), 1u);
    t.lanes[0].seen.clear();
    restart(t, 1);
    t.settle();
    EXPECT_EQ(t.lanes[0].view.base_chunk, 1u);
    EXPECT_EQ(t.lanes[0].view.view_hash, 0xabcdef0011223344u);
    EXPECT_EQ(chunks(t.lanes[0].seen), (std::vector<uint64_t>{1, 2, 3, 4}));
    EXPECT_EQ(sequences(t.lanes[0].seen), (std::vector<uint64_t>{0, 1, 2, 3}));
    for (const auto& h : t.lanes[0].seen) {
      EXPECT_EQ(h.view_version, 1u);
      EXPECT_EQ(h.view_hash, 0x11223344u);
      EXPECT_TRUE((h.flags & wire::kFlagResent) != 0);
      EXPECT_TRUE((h.flags & wire::kFlagKept) == 0);
    }
    op.expect_result();
    EXPECT_EQ(t.lanes[0].seen.back().chunk, 39u);
  }
}

// Another rank lacks the result of chunk 0. This rank sends its result again, from the buffer that keeps it.
TEST(ChunkSchedulerViewChange, ContributesKeptResults) {
  for (const size_t size : {size_t{2}, size_t{6}, size_t{40}}) {
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(testing::Message() << size << " chunks" << (in_place ? ", in place" : ""));
      SchedulerTestBed t(kShape);
      TestOperation op = start_chunks(t, size, in_place);
      t.settle();
      t.lanes[0].answer();
      t.lanes[1].answer();
      t.settle();
      if (size == 2) {
        ASSERT_TRUE(op.has_ended());
        op.release();
        op.overwrite_buffers();
      }
      lose_second(t);
      EXPECT_EQ(t.scheduler->first_unfinished(), 2u);
      t.lanes[0].seen.clear();
      restart(t, 0);
      // One at a time, because the payload of the last is checked.
      for (uint64_t q = 0; q < 2; ++q) {
        t.settle();
        ASSERT_GT(t.lanes[0].seen.size(), q);
        EXPECT_EQ(t.lanes[0].seen[q].chunk, q);
        EXPECT_TRUE((t.lanes[0].seen[q].flags & wire::kFlagKept) != 0);
      }
      if (size == 2) {
        EXPECT_EQ(t.lanes[0].last, op.result(kChunk, kChunk)) << "kept after the end of the operation";
      } else {
        EXPECT_TRUE((t.lanes[0].seen[2].flags & wire::kFlagKept) == 0);
      }
      // The answers must be dropped: FakeLane masks them, so they are wrong.
      t.settle_answering();
      if (size > 2) op.expect_result();
    }
  }
}

TEST(ChunkSchedulerViewChange, DropsResultsOfTheOldView) {
  SchedulerTestBed t(kShape);
  TestOperation op = start_chunks(t, 40);
  t.settle();
  lose_second(t);
  // In flight when the view changes.
  const auto old = t.lanes[0].waiting;
  restart(t, 0);
  std::vector<std::byte> junk(kChunk, std::byte{0x11});
  for (const wire::FrameHeader& contribution : old) {
    const wire::FrameHeader h = result_header(contribution);
    ASSERT_TRUE(t.lanes[0].endpoint->put(h, {}, {junk.data(), h.length}, h.sequence).ok());
  }
  op.expect_result();
}

// The transport writes the rest of the result to the buffer chosen at its header. By then another
// connection may have completed the chunk and returned the buffer to the caller.
TEST(ChunkSchedulerViewChange, WaitsForAPartlyReceivedResult) {
  SchedulerTestBed t(kShape);
  TestOperation op = start_chunks(t, 40);
  t.settle();
  wire::FrameHeader h = result_header(t.lanes[0].waiting.front());
  lose_second(t);
  ASSERT_TRUE(t.scheduler->is_quiescent());
  LaneConnection& lane = t.scheduler->lane(0);
  transport::Endpoint& unused = *t.lanes[0].endpoint;
  const transport::ReceiveTarget target = lane.on_header(unused, h, {});
  ASSERT_TRUE(target.status.ok());
  EXPECT_FALSE(t.scheduler->is_quiescent());
  const auto result_bytes = op.result(0, kChunk);
  std::ranges::copy(result_bytes, target.payload);
  lane.on_frame(unused, h, {}, {target.payload, h.length});
  EXPECT_TRUE(t.scheduler->is_quiescent());
  EXPECT_EQ(t.scheduler->first_unfinished(), 1u);
  // A partly received result ends with its connection.
  h = result_header(t.lanes[0].waiting[1]);
  ASSERT_TRUE(lane.on_header(unused, h, {}).status.ok());
  EXPECT_FALSE(t.scheduler->is_quiescent());
  break_lane(t, 0, t.lanes[0]);
  EXPECT_TRUE(t.scheduler->is_quiescent());
}

TEST(ChunkSchedulerViewChange, ChangesAgainBeforeTheLastChangeHasFinished) {
  SchedulerTestBed t(
      {.lanes = 3, .slots = kSlots, .slot_bytes = kChunk, .fault_tolerant = true, .placement = {}});
  TestOperation op = start_chunks(t, 60);
  t.settle();
  t.lanes[0].answer();
  t.lanes[1].answer();
  t.settle();
  break_lane(t, 2, t.lanes[2]);
  t.scheduler->stop();
  t.scheduler->restart({.version = 1, .hash = 1, .base = 0}, {0, 1});
  t.settle();
  break_lane(t, 1, t.lanes[1]);
  t.scheduler->stop();
  t.settle();
  t.lanes[0].seen.clear();
  t.scheduler->restart({.version = 2, .hash = 2, .base = 0}, {0});
  t.settle();
  ASSERT_GE(t.lanes[0].seen.size(), 3u);
  EXPECT_TRUE((t.lanes[0].seen[0].flags & wire::kFlagKept) != 0);
  EXPECT_TRUE((t.lanes[0].seen[1].flags & wire::kFlagKept) != 0);
  EXPECT_TRUE((t.lanes[0].seen[2].flags & wire::kFlagKept) == 0);
  op.expect_result();
}

TEST(ChunkSchedulerViewChange, UsesAnAddedLaneConnection) {
  SchedulerTestBed t(kShape);
  TestOperation op = start_chunks(t, 60);
  t.settle();
  t.scheduler->stop();
  t.settle();
  const uint32_t lane = t.scheduler->add_lane({.handle = 9, .slots = kSlots});
  EXPECT_EQ(lane, 2u);
  t.scheduler->restart({.version = 1, .hash = 1, .base = 0}, {0, 1, 2});
  FakeLane& added = resume_lane(t, lane);
  EXPECT_EQ(added.resume.version, 1u);
  EXPECT_EQ(added.resume.results_held, 0u);
  added.ack(0);
  op.expect_result();
  EXPECT_EQ(added.seen.size(), 20u);
}

// A reducer without a share must be ready to take over in a later view.
TEST(ChunkSchedulerViewChange, KeepsAConnectionOnStandby) {
  SchedulerTestBed t(kShape);
  TestOperation op = start_chunks(t, 40);
  t.settle();
  t.scheduler->stop();
  t.settle();
  t.lanes[1].seen.clear();
  t.scheduler->restart({.version = 1, .hash = 1, .base = 0}, {0}, {0, 1});
  op.expect_result();
  EXPECT_TRUE(t.scheduler->lane(1).is_bound());
  EXPECT_TRUE(t.lanes[1].seen.empty());
  EXPECT_EQ(t.lanes[1].view.version, 1u);
  t.scheduler->stop();
  t.settle();
  t.scheduler->restart({.version = 2, .hash = 2, .base = 40}, {1}, {0, 1});
  TestOperation next = start_chunks(t, 10);
  next.expect_result();
  EXPECT_EQ(t.lanes[1].seen.size(), 10u);
}

// The connection is being resumed in the old view, so it must not be used in the new one.
TEST(ChunkSchedulerViewChange, ClosesAConnectionThatWasNotResumedYet) {
  SchedulerTestBed t(kShape);
  TestOperation op = start_chunks(t, 40);
  t.settle();
  lose_second(t);
  break_lane(t, 0, t.lanes[0]);
  resume_lane(t, 0);
  t.lost_lane = kNoLane;
  restart(t, 0);
  t.settle();
  EXPECT_EQ(t.lost_lane, 0u);
  FakeLane& again = resume_lane(t, 0);
  EXPECT_EQ(again.resume.version, 1u);
  again.ack(0);
  op.expect_result();
}

TEST(ChunkSchedulerViewChange, ContinuesWithOperationsIssuedWhileStopped) {
  SchedulerTestBed t(kShape);
  TestOperation first = start_chunks(t, 6);
  t.settle();
  lose_second(t);
  TestOperation second = start_chunks(t, 5), third = start_chunks(t, 1);
  t.settle();
  restart(t, 0);
  TestOperation fourth = start_chunks(t, 30, true);
  for (TestOperation* op : {&first, &second, &third, &fourth}) op->expect_result();
  EXPECT_EQ(t.scheduler->first_unfinished(), 42u);
}

}  // namespace
}  // namespace sluice::engine::test
