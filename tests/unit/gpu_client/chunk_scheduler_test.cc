#include "gpu_client/engine/data_path/chunk_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/gpu_client/scheduler_test_bed.h"
#include "wire/view.h"

namespace sluice::engine::test {
namespace {

using ::testing::HasSubstr;

TEST(ChunkScheduler, PutsCommitFirstOnEveryLaneConnection) {
  SchedulerTestBed t({.lanes = 3});
  t.settle();
  for (const FakeLane& lane : t.lanes) {
    EXPECT_TRUE(lane.committed);
    EXPECT_EQ(lane.incarnation, 99u);
  }
}

TEST(ChunkScheduler, DeliversEveryByteForOddSizesAndTypes) {
  const struct {
    wire::DType dtype;
    size_t size;
  } types[] = {{wire::DType::kU8, 1},
               {wire::DType::kF8e4m3, 1},
               {wire::DType::kBf16, 2},
               {wire::DType::kF32, 4},
               {wire::DType::kF64, 8}};
  for (const uint32_t lanes : {1u, 2u, 3u, 7u}) {
    SchedulerTestBed t({.lanes = lanes, .slots = 3, .slot_bytes = 32 * 1024});
    for (const auto& type : types) {
      for (const size_t count : {1ul, 2ul, 63ul, 64ul, 65ul, 16383ul, 16384ul, 16385ul, 100001ul, 300007ul}) {
        const auto in = bytes(count * type.size, lanes);
        std::vector<std::byte> out(in.size() + 8, std::byte{0x77});
        const uint32_t op = t.start(in.data(), out.data(), count, type.dtype);
        t.settle_answering();
        ASSERT_TRUE(t.ended(op)) << lanes << " lanes, " << count << " x " << wire::to_string(type.dtype);
        EXPECT_EQ(t.table[op].status, Errc::kOk);
        EXPECT_TRUE(std::equal(in.begin(), in.end(), expected_result({out.begin(), out.end() - 8}).begin()));
        EXPECT_TRUE(std::all_of(out.end() - 8, out.end(), [](std::byte b) { return b == std::byte{0x77}; }))
            << "written past the end";
        t.table.release(op);
      }
    }
    EXPECT_EQ(t.ends_reported, 0);
  }
}

TEST(ChunkScheduler, ReducesInPlace) {
  SchedulerTestBed t({});
  TestOperation op(t, 200'000, true);
  op.expect_result();
}

// The number of results that are copied from the ring, for operations of `chunks` chunks on 2 lane
// connections with 4 slots each.
uint64_t copied_chunks(bool keep_results, bool in_place, std::initializer_list<size_t> chunks) {
  constexpr size_t kChunk = 16 * 1024;
  SchedulerTestBed t({.lanes = 2, .slots = 4, .slot_bytes = kChunk, .keep_results = keep_results});
  for (const size_t n : chunks) {
    TestOperation op(t, n * kChunk, in_place);
    op.expect_result();
    op.release();
  }
  const uint64_t copied = t.scheduler->counters().results_copied;
  EXPECT_EQ(copied % kChunk, 0u);
  return copied / kChunk;
}

TEST(ChunkScheduler, CopiesOnlyTheLastWResultsOfALaneConnection) {
  EXPECT_EQ(copied_chunks(true, false, {20}), 8u);
  EXPECT_EQ(copied_chunks(true, false, {8}), 8u);
  EXPECT_EQ(copied_chunks(true, false, {9}), 8u);
  // Each operation's own last results: during the next operation its buffer belongs to the caller.
  EXPECT_EQ(copied_chunks(true, false, {3, 20, 1, 5, 19}), 3u + 8 + 1 + 5 + 8);
}

TEST(ChunkScheduler, NeverOverwritesAContributionThatMayBeSentAgain) {
  EXPECT_EQ(copied_chunks(true, true, {20}), 20u);
}

TEST(ChunkScheduler, PredictsOnlyResultsOfOutstandingContributions) {
  constexpr size_t kChunk = 16 * 1024;
  SchedulerTestBed t({.lanes = 1, .slots = 4, .slot_bytes = kChunk});
  const auto in = bytes(5 * kChunk + 100);
  std::vector<std::byte> out(in.size());
  t.start(in.data(), out.data(), in.size());
  LaneConnection& lane = t.scheduler->lane(0);
  t.settle();
  transport::Endpoint& ep = *t.lanes[0].endpoint;
  // Four more chunks follow the first two.
  for (const unsigned i : {0u, 1u}) EXPECT_EQ(lane.expected_frame(ep, i).payload, out.data() + i * kChunk);
  const std::byte* const ring = lane.expected_frame(ep, 2).payload;
  EXPECT_TRUE(ring < out.data() || ring >= out.data() + out.size());
  EXPECT_EQ(lane.expected_frame(ep, 3).payload, ring + kChunk);
  EXPECT_EQ(lane.expected_frame(ep, 3).length, kChunk);
  EXPECT_EQ(lane.expected_frame(ep, 4).length, 0u) << "not put yet";
  for (int i = 0; i < 2; ++i) t.lanes[0].answer(), t.settle();
  EXPECT_EQ(lane.expected_frame(ep, 0).payload, ring);
  EXPECT_EQ(lane.expected_frame(ep, 3).length, 100u);
}

TEST(ChunkScheduler, CopiesNothingWithoutKeptResults) {
  EXPECT_EQ(copied_chunks(false, false, {20, 3}), 0u);
  EXPECT_EQ(copied_chunks(false, true, {20, 3}), 0u);
}

TEST(ChunkScheduler, NeverHasMoreThanWOutstandingOnALaneConnection) {
  SchedulerTestBed t({.lanes = 2, .slots = 3});
  TestOperation op(t, 40 * 16 * 1024);
  t.settle();
  for (FakeLane& lane : t.lanes) EXPECT_EQ(lane.waiting.size(), 3u);
  EXPECT_EQ(t.scheduler->lane(0).outstanding(), 3u);
  // One result is one credit.
  t.lanes[0].answer();
  t.settle();
  EXPECT_EQ(t.lanes[0].seen.size(), 4u);
  EXPECT_EQ(t.lanes[1].seen.size(), 3u);
  op.expect_result();
}

// Chunk D of another lane connection would overwrite a result that a rank without result 0 may still need.
TEST(ChunkScheduler, StaysWithinTheDepthOfTheFirstUnfinishedChunk) {
  SchedulerTestBed t({.lanes = 2, .slots = 3});
  TestOperation op(t, 40 * 16 * 1024);
  t.settle();
  for (int i = 0; i < 3; ++i) {
    t.lanes[1].answer();
    t.settle();
  }
  EXPECT_EQ(t.lanes[1].seen.size(), 3u) << "a credit alone does not suffice";
  EXPECT_EQ(t.scheduler->first_unfinished(), 0u);
  t.lanes[0].answer();
  t.settle();
  EXPECT_EQ(t.scheduler->first_unfinished(), 2u);
  EXPECT_EQ(t.lanes[1].seen.size(), 4u);
  op.expect_result();
}

TEST(ChunkScheduler, FollowsThePlacementTableAcrossOperations) {
  // Uneven on purpose: lane connection 1 has half of the chunks.
  const std::vector<uint32_t> placement{1, 0, 1, 2};
  SchedulerTestBed t({.lanes = 3, .slots = 64, .placement = placement});
  const auto in = bytes(5 * 16 * 1024);
  std::vector<std::byte> out(in.size());
  uint64_t chunks = 0;
  for (const size_t size : {1ul, 16ul * 1024, 5ul * 16 * 1024, 17ul * 1024, 3ul}) {
    const uint32_t op = t.start(in.data(), out.data(), size);
    chunks += t.table[op].chunk_count;
  }
  t.settle();
  std::vector<uint32_t> found(chunks, 99);
  for (uint32_t l = 0; l < 3; ++l) {
    uint64_t last = 0;
    for (const wire::FrameHeader& h : t.lanes[l].seen) {
      ASSERT_LT(h.chunk, chunks);
      found[h.chunk] = l;
      EXPECT_TRUE(last == 0 || h.chunk > last) << "chunks out of order on a lane connection";
      last = h.chunk;
    }
  }
  for (uint64_t q = 0; q < chunks; ++q) EXPECT_EQ(found[q], placement[q % placement.size()]) << q;
}

TEST(ChunkScheduler, CarriesTheFieldsOfTheProtocol) {
  SchedulerTestBed t({.lanes = 2});
  const std::vector<uint16_t> in(9000, 0x3f80);
  std::vector<uint16_t> out(in.size());
  t.start(in.data(), out.data(), 1, wire::DType::kU8);
  t.start(in.data(), out.data(), in.size(), wire::DType::kBf16, wire::Op::kAvg);
  t.settle();
  const wire::FrameHeader& h = t.lanes[1].seen.front();
  EXPECT_EQ(h.session, 8u);
  EXPECT_EQ(h.view_hash, 0x1234abcdu);
  EXPECT_EQ(h.kind, wire::Kind::kAllreduce);
  EXPECT_EQ(h.chunk, 1u);
  EXPECT_EQ(h.op_id, 1u);
  EXPECT_EQ(h.wire_dtype, wire::DType::kBf16);
  EXPECT_EQ(h.acc_dtype, wire::DType::kF32);
  EXPECT_EQ(h.result_dtype, wire::DType::kBf16);
  EXPECT_EQ(h.op, wire::Op::kAvg);
  EXPECT_EQ(h.length, 16384u);
  EXPECT_EQ(h.flags, wire::kFlagPayloadCrc);
  EXPECT_EQ(h.fingerprint,
            wire::fingerprint(9000, wire::DType::kBf16, wire::Op::kAvg, wire::Kind::kAllreduce));
  EXPECT_EQ(t.lanes[1].count, 9000u) << "OP_INFO";
}

TEST(ChunkScheduler, OmitsThePayloadCrcWhenDisabled) {
  SchedulerTestBed t({.payload_crc = false});
  const TestOperation op(t, 100);
  t.settle();
  EXPECT_EQ(t.lanes[0].seen.front().flags, 0);
}

TEST(ChunkScheduler, StartsAtTheLaneConnectionOfItsRank) {
  for (const uint32_t rank : {0u, 1u, 2u, 4u}) {
    SchedulerTestBed t({.lanes = 3, .rank = rank});
    const TestOperation op(t, 3 * 16 * 1024);
    t.scheduler->put_chunks(1);  // one chunk
    t.context->poll(t.now, SIZE_MAX);
    t.far_context->poll(t.now, SIZE_MAX);
    for (uint32_t l = 0; l < 3; ++l) EXPECT_EQ(t.lanes[l].seen.size(), l == rank % 3 ? 1u : 0u) << rank;
  }
}

TEST(ChunkScheduler, CompletesManyConcurrentOperations) {
  SchedulerTestBed t({.lanes = 2, .slots = 2});
  constexpr size_t kOps = 200;
  std::vector<std::vector<std::byte>> in;
  std::vector<std::vector<std::byte>> out;
  std::vector<uint32_t> ops;
  for (size_t i = 0; i < kOps; ++i) {
    in.push_back(bytes(1 + i * 301, static_cast<unsigned>(i)));
    out.emplace_back(in.back().size());
  }
  for (size_t i = 0; i < kOps; ++i) ops.push_back(t.start(in[i].data(), out[i].data(), in[i].size()));
  EXPECT_EQ(t.scheduler->oldest_operation(), ops.front());
  t.settle_answering();
  EXPECT_EQ(t.scheduler->operations_done(), kOps);
  EXPECT_EQ(t.scheduler->oldest_operation(), kNoOperation);
  for (size_t i = 0; i < kOps; ++i) {
    ASSERT_TRUE(t.ended(ops[i])) << i;
    EXPECT_EQ(out[i], expected_result(in[i])) << i;
  }
}

TEST(ChunkScheduler, ReusesTableEntries) {
  SchedulerTestBed t({.lanes = 3, .slots = 2});
  const auto in = bytes(20'000);
  std::vector<std::byte> out(in.size());
  for (int i = 0; i < 5000; ++i) {
    const uint32_t op = t.start(in.data(), out.data(), static_cast<uint64_t>(1 + (i * 37) % 20000));
    t.settle_answering();
    ASSERT_TRUE(t.ended(op)) << i;
    t.table.release(op);
  }
}

TEST(ChunkScheduler, EndsOnAnUnexpectedResult) {
  const struct {
    const char* what;
    std::function<void(wire::FrameHeader&)> change;
    Errc code;
  } cases[] = {
      {"session", [](auto& h) { ++h.session; }, Errc::kBadSession},
      {"view version", [](auto& h) { ++h.view_version; }, Errc::kBadView},
      {"view hash", [](auto& h) { ++h.view_hash; }, Errc::kBadView},
      {"sequence", [](auto& h) { ++h.sequence; }, Errc::kBadSequence},
      {"slot", [](auto& h) { h.slot = 1; }, Errc::kBadSlot},
      {"chunk", [](auto& h) { ++h.chunk; }, Errc::kBadField},
      {"operation", [](auto& h) { ++h.op_id; }, Errc::kBadField},
      {"dtype", [](auto& h) { h.wire_dtype = h.acc_dtype = h.result_dtype = wire::DType::kI8; },
       Errc::kBadDType},
      {"operator", [](auto& h) { h.op = wire::Op::kMax; }, Errc::kBadOp},
      {"length", [](auto& h) { --h.length; }, Errc::kBadLength},
      {"fingerprint", [](auto& h) { ++h.fingerprint; }, Errc::kBadField},
  };
  for (const auto& c : cases) {
    SchedulerTestBed t({});
    const auto in = bytes(100);
    auto out = bytes(100, 5);
    const auto before = out;
    const uint32_t op = t.start(in.data(), out.data(), 100);
    t.settle();
    t.lanes[0].answer(c.change);
    t.settle();
    ASSERT_EQ(t.ends_reported, 1) << c.what;
    EXPECT_EQ(t.session_end.code, c.code) << c.what;
    EXPECT_EQ(t.session_end.lane, 0u);
    EXPECT_THAT(t.session_end.text.data(), HasSubstr(c.what));
    EXPECT_EQ(out, before) << "no byte of it reaches the user buffer";
    ASSERT_TRUE(t.scheduler->is_drained()) << c.what;
    EXPECT_FALSE(t.ended(op)) << "only fail_open_operations() ends operations";
    t.scheduler->fail_open_operations(t.session_end.code);
    EXPECT_TRUE(t.ended(op));
    EXPECT_EQ(t.table[op].status, c.code);
  }
}

TEST(ChunkScheduler, EndsOnAResultWithoutAContribution) {
  SchedulerTestBed t({});
  const TestOperation op(t, 100);
  t.settle();
  t.lanes[0].answer();
  t.settle();
  // The same result again with the next sequence.
  wire::FrameHeader again = t.lanes[0].seen.front();
  again.sequence = 1;
  again.slot = 1;
  t.lanes[0].waiting.push_back(again);
  t.lanes[0].answer();
  t.settle();
  EXPECT_EQ(t.ends_reported, 1);
  EXPECT_EQ(t.session_end.code, Errc::kBadSequence);
  EXPECT_THAT(t.session_end.text.data(), HasSubstr("has no contribution"));
}

TEST(ChunkScheduler, ReportsTheTextOfAnAbort) {
  SchedulerTestBed t({});
  TestOperation op(t, 100);
  t.settle();
  t.lanes[1].abort(Errc::kMismatch, "rank 3 has count 5, rank 0 has 4");
  t.settle();
  ASSERT_EQ(t.ends_reported, 1);
  EXPECT_TRUE(t.session_end.from_peer);
  EXPECT_EQ(t.session_end.code, Errc::kMismatch);
  EXPECT_EQ(t.session_end.rank, 3u);
  EXPECT_EQ(t.session_end.lane, 1u);
  EXPECT_STREQ(t.session_end.text.data(), "rank 3 has count 5, rank 0 has 4");
  t.scheduler->fail_open_operations(t.session_end.code);
  EXPECT_EQ(op.status(), Errc::kMismatch);
}

TEST(ChunkScheduler, ReplacesLocalErrorCodesOfPeers) {
  SchedulerTestBed t({});
  t.settle();
  t.lanes[0].abort(Errc::kWouldBlock, "hm");
  t.settle();
  EXPECT_EQ(t.session_end.code, Errc::kAborted);
  EXPECT_STREQ(t.session_end.text.data(), "hm");
}

TEST(ChunkScheduler, RejectsOtherFramesOnALaneConnection) {
  SchedulerTestBed t({});
  t.settle();
  const auto body = wire::encode_body(wire::Leave{});
  ASSERT_TRUE(
      t.lanes[0].endpoint->put(wire::control_header(wire::FrameType::kLeave, body, 7), {}, body, 0).ok());
  t.settle();
  EXPECT_EQ(t.session_end.code, Errc::kUnexpectedMessage);
  EXPECT_THAT(t.session_end.text.data(), HasSubstr("LEAVE"));
}

TEST(ChunkScheduler, ReportsALostLaneConnectionAndContinues) {
  SchedulerTestBed t({});
  t.settle();
  t.lanes[1].endpoint->close(Errc::kReset);
  t.settle();
  EXPECT_EQ(t.lost_lane, 1u);
  EXPECT_EQ(t.lost_reason, Errc::kReset);
  EXPECT_FALSE(t.scheduler->has_ended());
  TestOperation op(t, 100);  // chunk 0 belongs to lane connection 0
  t.settle_answering();
  EXPECT_TRUE(op.has_ended());
  t.scheduler->end(Errc::kReducerLost);
  t.settle();
  EXPECT_TRUE(t.scheduler->is_drained());
  EXPECT_EQ(t.ends_reported, 0) << "end() is not reported to the listener";
}

TEST(ChunkScheduler, EndsEveryOpenOperationOnce) {
  SchedulerTestBed t({.lanes = 2, .slots = 2});
  const auto in = bytes(100'000);
  std::vector<std::byte> out(in.size());
  std::vector<uint32_t> ops;
  for (int i = 0; i < 5; ++i) ops.push_back(t.start(in.data(), out.data(), in.size()));
  t.settle();
  t.scheduler->put_chunks(SIZE_MAX);
  t.scheduler->end(Errc::kClosed);
  EXPECT_FALSE(t.scheduler->is_drained()) << "the transport still holds buffers";
  t.settle();
  ASSERT_TRUE(t.scheduler->is_drained());
  t.scheduler->fail_open_operations(Errc::kClosed);
  t.scheduler->fail_open_operations(Errc::kClosed);
  for (const uint32_t op : ops) {
    EXPECT_TRUE(t.ended(op));
    EXPECT_EQ(t.table[op].status, Errc::kClosed);
  }
  EXPECT_EQ(t.table.open_count(), 0u);
}

// While the transport holds a contribution, the user's buffer must not change.
TEST(ChunkScheduler, WritesInPlaceOnlyAfterOnSent) {
  SchedulerTestBed t({.lanes = 1});
  auto data = bytes(1000);
  const auto in = data;
  const uint32_t op = t.start(data.data(), data.data(), data.size());
  t.scheduler->put_chunks(SIZE_MAX);
  t.far_context->poll(t.now, SIZE_MAX);  // receives COMMIT and the contribution
  ASSERT_EQ(t.lanes[0].waiting.size(), 1u);
  const wire::FrameHeader sent = t.lanes[0].waiting.front();
  LaneConnection& lane = t.scheduler->lane(0);
  wire::FrameHeader h = sent;
  h.type = wire::FrameType::kResult;
  auto target = lane.on_header(*t.lanes[0].endpoint, h, {});
  ASSERT_TRUE(target.status.ok());
  std::memset(target.payload, 0x11, h.length);
  lane.on_frame(*t.lanes[0].endpoint, h, {}, {target.payload, h.length});
  EXPECT_EQ(data, in) << "changed while the transport holds it";
  EXPECT_FALSE(t.ended(op));
  t.context->poll(t.now, SIZE_MAX);  // on_sent
  EXPECT_TRUE(t.ended(op));
  EXPECT_EQ(data, std::vector<std::byte>(1000, std::byte{0x11}));
}

}  // namespace
}  // namespace sluice::engine::test
