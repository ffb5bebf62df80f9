#include "gpu_client/engine/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/gpu_client/fake_reducer.h"
#include "wire/view.h"

namespace sluice::engine::test {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> bytes(size_t n, unsigned seed = 1) {
  std::vector<std::byte> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 9)) & 0xff);
  return v;
}

std::vector<std::byte> turned(std::vector<std::byte> v) {
  for (std::byte& b : v) b ^= kTurn;
  return v;
}

TEST(Exchange, PutsCommitFirstOnEveryLink) {
  Rig rig({.links = 3});
  rig.settle();
  for (const FakeLane& lane : rig.lanes) {
    EXPECT_TRUE(lane.committed);
    EXPECT_EQ(lane.incarnation, 99u);
  }
}

TEST(Exchange, BringsEveryByteHomeForOddSizesAndTypes) {
  const struct {
    wire::DType dtype;
    size_t size;
  } types[] = {{wire::DType::kU8, 1},
               {wire::DType::kF8e4m3, 1},
               {wire::DType::kBf16, 2},
               {wire::DType::kF32, 4},
               {wire::DType::kF64, 8}};
  for (const uint32_t links : {1u, 2u, 3u, 7u}) {
    Rig rig({.links = links, .slots = 3, .slot_bytes = 32 * 1024});
    for (const auto& type : types) {
      for (const size_t count : {1ul, 2ul, 63ul, 64ul, 65ul, 16383ul, 16384ul, 16385ul, 100001ul, 300007ul}) {
        const auto in = bytes(count * type.size, links);
        std::vector<std::byte> out(in.size() + 8, std::byte{0x77});
        const uint32_t op = rig.start(in.data(), out.data(), count, type.dtype);
        rig.settle_answering();
        ASSERT_TRUE(rig.ended(op)) << links << " links, " << count << " x " << wire::to_string(type.dtype);
        EXPECT_EQ(rig.table[op].status, Errc::kOk);
        EXPECT_TRUE(std::equal(in.begin(), in.end(), turned({out.begin(), out.end() - 8}).begin()));
        EXPECT_TRUE(std::all_of(out.end() - 8, out.end(), [](std::byte b) { return b == std::byte{0x77}; }))
            << "written behind the end";
        rig.table.release(op);
      }
    }
    EXPECT_EQ(rig.endings, 0);
  }
}

TEST(Exchange, ReducesInPlace) {
  Rig rig({});
  const auto in = bytes(200'000);
  auto data = in;
  const uint32_t op = rig.start(data.data(), data.data(), data.size());
  rig.settle_answering();
  ASSERT_TRUE(rig.ended(op));
  EXPECT_EQ(data, turned(in));
}

// Bytes of results that pass through the ring, for operations of `chunks` chunks on 2 links with 4 slots
// each.
uint64_t copied(bool keep_results, bool in_place, std::initializer_list<size_t> chunks) {
  constexpr size_t kChunk = 16 * 1024;
  Rig rig({.links = 2, .slots = 4, .slot_bytes = kChunk, .keep_results = keep_results});
  for (const size_t n : chunks) {
    const auto in = bytes(n * kChunk);
    auto data = in;
    std::vector<std::byte> out(in.size());
    std::byte* const recv = in_place ? data.data() : out.data();
    const uint32_t op = rig.start(data.data(), recv, in.size());
    rig.settle_answering();
    EXPECT_TRUE(rig.ended(op));
    EXPECT_EQ(in_place ? data : out, turned(in));
    rig.table.release(op);
  }
  EXPECT_EQ(rig.exchange->result_bytes_copied() % kChunk, 0u);
  return rig.exchange->result_bytes_copied() / kChunk;
}

TEST(Exchange, KeepsTheLastWResultsOfALinkAndCopiesNoOthers) {
  EXPECT_EQ(copied(true, false, {20}), 8u);
  EXPECT_EQ(copied(true, false, {8}), 8u);
  EXPECT_EQ(copied(true, false, {9}), 8u);
  // An operation's own last ones: by the next one's time its buffer is the caller's again.
  EXPECT_EQ(copied(true, false, {3, 20, 1, 5, 19}), 3u + 8 + 1 + 5 + 8);
}

TEST(Exchange, NeverReceivesOverAContributionThatMayBeAskedForAgain) {
  EXPECT_EQ(copied(true, true, {20}), 20u);
}

TEST(Exchange, ForeseesTheResultsOfWhatIsOutstandingAndNoOthers) {
  constexpr size_t kChunk = 16 * 1024;
  Rig rig({.links = 1, .slots = 4, .slot_bytes = kChunk});
  const auto in = bytes(5 * kChunk + 100);
  std::vector<std::byte> out(in.size());
  rig.start(in.data(), out.data(), in.size());
  Link& link = rig.exchange->link(0);
  rig.settle();
  transport::Endpoint& ep = *rig.lanes[0].endpoint;
  // The first two are followed by four more.
  for (const unsigned i : {0u, 1u}) EXPECT_EQ(link.forecast(ep, i).payload, out.data() + i * kChunk);
  const std::byte* const ring = link.forecast(ep, 2).payload;
  EXPECT_TRUE(ring < out.data() || ring >= out.data() + out.size());
  EXPECT_EQ(link.forecast(ep, 3).payload, ring + kChunk);
  EXPECT_EQ(link.forecast(ep, 3).length, kChunk);
  EXPECT_EQ(link.forecast(ep, 4).length, 0u) << "not put yet";
  for (int i = 0; i < 2; ++i) rig.lanes[0].answer(), rig.settle();
  EXPECT_EQ(link.forecast(ep, 0).payload, ring);
  EXPECT_EQ(link.forecast(ep, 3).length, 100u);
}

TEST(Exchange, CopiesNothingThatIsNotKept) {
  EXPECT_EQ(copied(false, false, {20, 3}), 0u);
  EXPECT_EQ(copied(false, true, {20, 3}), 0u);
}

TEST(Exchange, NeverHasMoreThanWOutstandingOnALink) {
  Rig rig({.links = 2, .slots = 3});
  const auto in = bytes(40 * 16 * 1024);
  std::vector<std::byte> out(in.size());
  const uint32_t op = rig.start(in.data(), out.data(), in.size());
  rig.settle();
  for (FakeLane& lane : rig.lanes) EXPECT_EQ(lane.waiting.size(), 3u);
  EXPECT_EQ(rig.exchange->link(0).outstanding(), 3u);
  // One result is one credit, no more.
  rig.lanes[0].answer();
  rig.settle();
  EXPECT_EQ(rig.lanes[0].seen.size(), 4u);
  EXPECT_EQ(rig.lanes[1].seen.size(), 3u);
  rig.settle_answering();
  ASSERT_TRUE(rig.ended(op));
  EXPECT_EQ(out, turned(in));
}

// Chunk D of another link would displace what a rank may miss that has not got chunk 0.
TEST(Exchange, RunsNoMoreThanTheDepthAheadOfTheFirstUnfinishedChunk) {
  Rig rig({.links = 2, .slots = 3});
  const auto in = bytes(40 * 16 * 1024);
  std::vector<std::byte> out(in.size());
  const uint32_t op = rig.start(in.data(), out.data(), in.size());
  rig.settle();
  for (int i = 0; i < 3; ++i) {
    rig.lanes[1].answer();
    rig.settle();
  }
  EXPECT_EQ(rig.lanes[1].seen.size(), 3u) << "credit alone is not enough";
  EXPECT_EQ(rig.exchange->first_unfinished(), 0u);
  rig.lanes[0].answer();
  rig.settle();
  EXPECT_EQ(rig.exchange->first_unfinished(), 2u);
  EXPECT_EQ(rig.lanes[1].seen.size(), 4u);
  rig.settle_answering();
  ASSERT_TRUE(rig.ended(op));
  EXPECT_EQ(out, turned(in));
}

TEST(Exchange, PacesALinkBelowItsSlots) {
  Rig rig({.links = 2, .slots = 64, .paced = true});
  const auto in = bytes(40 * 16 * 1024);
  std::vector<std::byte> out(in.size());
  const uint32_t op = rig.start(in.data(), out.data(), in.size());
  rig.settle();
  for (FakeLane& lane : rig.lanes) EXPECT_EQ(lane.waiting.size(), Pace::kFirst);
  rig.settle_answering();
  ASSERT_TRUE(rig.ended(op));
  EXPECT_EQ(out, turned(in));
}

// What waits for a slot is held back as well: else no trial at W is judged, and none begins from there.
TEST(Exchange, LetsThePaceJudgeAllSlots) {
  constexpr uint32_t kSlots = 4, kSlotBytes = 64;
  constexpr int kToRise = 3000, kToFall = 3000;  // results; the trials at less come after all those at more
  Rig rig({.links = 1, .slots = kSlots, .slot_bytes = kSlotBytes, .paced = true});
  const auto in = bytes(size_t{kToRise + kToFall + kSlots} * kSlotBytes);
  std::vector<std::byte> out(in.size());
  rig.start(in.data(), out.data(), in.size());
  const Pace& pace = rig.exchange->pace();
  const auto answer_after = [&](Nanos time) {
    rig.settle();
    rig.now += time;
    rig.exchange->set_now(rig.now);
    rig.lanes[0].answer();
  };
  for (int i = 0; i < kToRise; ++i) answer_after(kMillisecond / pace.limit());
  EXPECT_EQ(pace.limit(), kSlots) << "the more under way, the faster";
  for (int i = 0; i < kToFall; ++i) answer_after(kMillisecond);
  EXPECT_EQ(pace.limit(), kSlots / 2) << "half as many are as fast";
}

TEST(Exchange, RelaysLossesOnTheFirstLink) {
  Rig rig({.links = 2, .slots = 64, .paced = true});
  const auto in = bytes(40 * 16 * 1024);
  std::vector<std::byte> out(in.size());
  const uint32_t op = rig.start(in.data(), out.data(), in.size());
  rig.settle();
  rig.lanes[1].answer([](wire::FrameHeader& h) { h.flags |= wire::kFlagLosses; });
  rig.settle();
  rig.settle_answering();
  ASSERT_TRUE(rig.ended(op));
  const auto told = [](const FakeLane& lane) {
    return std::ranges::count_if(lane.seen, [](const auto& h) { return (h.flags & wire::kFlagLosses) != 0; });
  };
  EXPECT_EQ(told(rig.lanes[0]), 1);
  EXPECT_EQ(told(rig.lanes[1]), 0);
}

TEST(Exchange, FollowsThePlacementTableAcrossOperations) {
  // Uneven on purpose: link 1 has half of the chunks.
  const std::vector<uint32_t> placement{1, 0, 1, 2};
  Rig rig({.links = 3, .slots = 64, .placement = placement});
  const auto in = bytes(5 * 16 * 1024);
  std::vector<std::byte> out(in.size());
  uint64_t chunks = 0;
  for (const size_t size : {1ul, 16ul * 1024, 5ul * 16 * 1024, 17ul * 1024, 3ul}) {
    const uint32_t op = rig.start(in.data(), out.data(), size);
    chunks += rig.table[op].chunk_count;
  }
  rig.settle();
  std::vector<uint32_t> found(chunks, 99);
  for (uint32_t l = 0; l < 3; ++l) {
    uint64_t last = 0;
    for (const wire::FrameHeader& h : rig.lanes[l].seen) {
      ASSERT_LT(h.chunk, chunks);
      found[h.chunk] = l;
      EXPECT_TRUE(last == 0 || h.chunk > last) << "order on a link";
      last = h.chunk;
    }
  }
  for (uint64_t q = 0; q < chunks; ++q) EXPECT_EQ(found[q], placement[q % placement.size()]) << q;
}

TEST(Stragglers, AddUpPerRankAndIgnoreARankThatThereIsNot) {
  Stragglers s(3);
  EXPECT_EQ(s.slowest().lag_us, 0u);
  s.note({.last_rank = 2, .lag_us = 5});
  s.note({.last_rank = 1, .lag_us = 7});
  s.note({.last_rank = 2, .lag_us = 4});
  s.note({.last_rank = 3, .lag_us = 1000});
  EXPECT_EQ(s.slowest().rank, 2u);
  EXPECT_EQ(s.slowest().lag_us, 9u);
}

TEST(Exchange, CarriesTheFieldsOfTheProtocol) {
  Rig rig({.links = 2});
  const std::vector<uint16_t> in(9000, 0x3f80);
  std::vector<uint16_t> out(in.size());
  rig.start(in.data(), out.data(), 1, wire::DType::kU8);
  rig.start(in.data(), out.data(), in.size(), wire::DType::kBf16, wire::Op::kAvg);
  rig.settle();
  const wire::FrameHeader& h = rig.lanes[1].seen.front();
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
  EXPECT_EQ(rig.lanes[1].count, 9000u) << "OP_INFO";
}

TEST(Exchange, LeavesThePayloadCrcOutWhenTold) {
  Rig rig({.payload_crc = false});
  const auto in = bytes(100);
  std::vector<std::byte> out(100);
  rig.start(in.data(), out.data(), 100);
  rig.settle();
  EXPECT_EQ(rig.lanes[0].seen.front().flags, 0);
}

TEST(Exchange, ServesLinksFromItsOwnRankOn) {
  for (const uint32_t rank : {0u, 1u, 2u, 4u}) {
    Rig rig({.links = 3, .rank = rank});
    const auto in = bytes(3 * 16 * 1024);
    std::vector<std::byte> out(in.size());
    rig.start(in.data(), out.data(), in.size());
    rig.exchange->put_chunks(1);  // one chunk
    rig.context->poll(rig.now, SIZE_MAX);
    rig.far_context->poll(rig.now, SIZE_MAX);
    for (uint32_t l = 0; l < 3; ++l) EXPECT_EQ(rig.lanes[l].seen.size(), l == rank % 3 ? 1u : 0u) << rank;
  }
}

TEST(Exchange, KeepsManyOperationsInFlightAndEndsEachOnce) {
  Rig rig({.links = 2, .slots = 2});
  constexpr size_t kOps = 200;
  std::vector<std::vector<std::byte>> in;
  std::vector<std::vector<std::byte>> out;
  std::vector<uint32_t> ops;
  for (size_t i = 0; i < kOps; ++i) {
    in.push_back(bytes(1 + i * 301, static_cast<unsigned>(i)));
    out.emplace_back(in.back().size());
  }
  for (size_t i = 0; i < kOps; ++i) ops.push_back(rig.start(in[i].data(), out[i].data(), in[i].size()));
  EXPECT_EQ(rig.exchange->oldest(), ops.front());
  rig.settle_answering();
  EXPECT_EQ(rig.exchange->operations_done(), kOps);
  EXPECT_EQ(rig.exchange->oldest(), kNoOperation);
  for (size_t i = 0; i < kOps; ++i) {
    ASSERT_TRUE(rig.ended(ops[i])) << i;
    EXPECT_EQ(out[i], turned(in[i])) << i;
  }
}

TEST(Exchange, ReusesPlacesOfTheTableForALongTime) {
  Rig rig({.links = 3, .slots = 2});
  const auto in = bytes(20'000);
  std::vector<std::byte> out(in.size());
  for (int i = 0; i < 5000; ++i) {
    const uint32_t op = rig.start(in.data(), out.data(), static_cast<uint64_t>(1 + (i * 37) % 20000));
    rig.settle_answering();
    ASSERT_TRUE(rig.ended(op)) << i;
    rig.table.release(op);
  }
}

TEST(Exchange, EndsOnAResultThatIsNotTheOneExpected) {
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
    Rig rig({});
    const auto in = bytes(100);
    auto out = bytes(100, 5);
    const auto before = out;
    const uint32_t op = rig.start(in.data(), out.data(), 100);
    rig.settle();
    rig.lanes[0].answer(c.change);
    rig.settle();
    ASSERT_EQ(rig.endings, 1) << c.what;
    EXPECT_EQ(rig.ending.code, c.code) << c.what;
    EXPECT_EQ(rig.ending.link, 0u);
    EXPECT_THAT(rig.ending.text.data(), HasSubstr(c.what));
    EXPECT_EQ(out, before) << "nothing of it reaches the user";
    ASSERT_TRUE(rig.exchange->drained()) << c.what;
    EXPECT_FALSE(rig.ended(op)) << "only give_up() ends operations";
    rig.exchange->give_up();
    EXPECT_TRUE(rig.ended(op));
    EXPECT_EQ(rig.table[op].status, c.code);
  }
}

TEST(Exchange, EndsOnAResultNobodyAskedFor) {
  Rig rig({});
  const auto in = bytes(100);
  std::vector<std::byte> out(100);
  rig.start(in.data(), out.data(), 100);
  rig.settle();
  rig.lanes[0].answer();
  rig.settle();
  // The same result once more, as if it were the next.
  wire::FrameHeader again = rig.lanes[0].seen.front();
  again.sequence = 1;
  again.slot = 1;
  rig.lanes[0].waiting.push_back(again);
  rig.lanes[0].answer();
  rig.settle();
  EXPECT_EQ(rig.endings, 1);
  EXPECT_EQ(rig.ending.code, Errc::kBadSequence);
  EXPECT_THAT(rig.ending.text.data(), HasSubstr("without a contribution"));
}

TEST(Exchange, PassesOnTheWordsOfAnAbort) {
  Rig rig({});
  const auto in = bytes(100);
  std::vector<std::byte> out(100);
  const uint32_t op = rig.start(in.data(), out.data(), 100);
  rig.settle();
  rig.lanes[1].abort(Errc::kMismatch, "rank 3 has count 5, rank 0 has 4");
  rig.settle();
  ASSERT_EQ(rig.endings, 1);
  EXPECT_TRUE(rig.ending.from_peer);
  EXPECT_EQ(rig.ending.code, Errc::kMismatch);
  EXPECT_EQ(rig.ending.rank, 3u);
  EXPECT_EQ(rig.ending.link, 1u);
  EXPECT_STREQ(rig.ending.text.data(), "rank 3 has count 5, rank 0 has 4");
  rig.exchange->give_up();
  EXPECT_EQ(rig.table[op].status, Errc::kMismatch);
}

TEST(Exchange, TakesNoLocalNumberFromAPeer) {
  Rig rig({});
  rig.settle();
  rig.lanes[0].abort(Errc::kWouldBlock, "hm");
  rig.settle();
  EXPECT_EQ(rig.ending.code, Errc::kAborted);
  EXPECT_STREQ(rig.ending.text.data(), "hm");
}

TEST(Exchange, RefusesOtherFramesOnALaneConnection) {
  Rig rig({});
  rig.settle();
  const auto body = wire::encode_body(wire::Leave{});
  ASSERT_TRUE(
      rig.lanes[0].endpoint->put(wire::control_header(wire::FrameType::kLeave, body, 7), {}, body, 0).ok());
  rig.settle();
  EXPECT_EQ(rig.ending.code, Errc::kUnexpectedMessage);
  EXPECT_THAT(rig.ending.text.data(), HasSubstr("LEAVE"));
}

TEST(Exchange, TellsOfALostLinkAndGoesOnUntilTold) {
  Rig rig({});
  rig.settle();
  rig.lanes[1].endpoint->close(Errc::kReset);
  rig.settle();
  EXPECT_EQ(rig.lost_link, 1u);
  EXPECT_EQ(rig.lost_reason, Errc::kReset);
  EXPECT_FALSE(rig.exchange->ended());
  const auto in = bytes(100);
  std::vector<std::byte> out(100);
  const uint32_t op = rig.start(in.data(), out.data(), 100);  // chunk 0 falls on link 0
  rig.settle_answering();
  EXPECT_TRUE(rig.ended(op));
  rig.exchange->end(Errc::kReducerLost);
  rig.settle();
  EXPECT_TRUE(rig.exchange->drained());
  EXPECT_EQ(rig.endings, 0) << "whoever ends it knows why";
}

TEST(Exchange, EndsEveryOpenOperationOnceWhenClosed) {
  Rig rig({.links = 2, .slots = 2});
  const auto in = bytes(100'000);
  std::vector<std::byte> out(in.size());
  std::vector<uint32_t> ops;
  for (int i = 0; i < 5; ++i) ops.push_back(rig.start(in.data(), out.data(), in.size()));
  rig.settle();
  rig.exchange->put_chunks(SIZE_MAX);
  rig.exchange->end(Errc::kClosed);
  EXPECT_FALSE(rig.exchange->drained()) << "the transport still holds buffers";
  rig.settle();
  ASSERT_TRUE(rig.exchange->drained());
  rig.exchange->give_up();
  rig.exchange->give_up();
  for (const uint32_t op : ops) {
    EXPECT_TRUE(rig.ended(op));
    EXPECT_EQ(rig.table[op].status, Errc::kClosed);
  }
  EXPECT_EQ(rig.table.open_count(), 0u);
}

// A transport that gives contributions back late: the user's buffer must stay as it is until then.
TEST(Exchange, WaitsForTheTransportBeforeItWritesInPlace) {
  Rig rig({.links = 1});
  auto data = bytes(1000);
  const auto in = data;
  const uint32_t op = rig.start(data.data(), data.data(), data.size());
  rig.exchange->put_chunks(SIZE_MAX);
  rig.far_context->poll(rig.now, SIZE_MAX);  // takes COMMIT and the contribution
  ASSERT_EQ(rig.lanes[0].waiting.size(), 1u);
  const wire::FrameHeader sent = rig.lanes[0].waiting.front();
  Link& link = rig.exchange->link(0);
  wire::FrameHeader h = sent;
  h.type = wire::FrameType::kResult;
  auto place = link.on_header(*rig.lanes[0].endpoint, h, {});
  ASSERT_TRUE(place.status.ok());
  std::memset(place.payload, 0x11, h.length);
  link.on_frame(*rig.lanes[0].endpoint, h, {}, {place.payload, h.length});
  EXPECT_EQ(data, in) << "written while the transport holds it";
  EXPECT_FALSE(rig.ended(op));
  rig.context->poll(rig.now, SIZE_MAX);  // on_sent
  EXPECT_TRUE(rig.ended(op));
  EXPECT_EQ(data, std::vector<std::byte>(1000, std::byte{0x11}));
}

}  // namespace
}  // namespace sluice::engine::test
