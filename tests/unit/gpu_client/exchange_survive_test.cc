// Connections that break and views that change under an exchange: PROTOCOL.md section 11, the worker's side.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpu_client/engine/exchange.h"
#include "tests/unit/gpu_client/fake_reducer.h"

namespace sluice::engine::test {
namespace {

constexpr uint32_t kSlots = 4;
constexpr uint32_t kChunk = 16 * 1024;
constexpr auto kShape =
    Rig::Shape{.links = 2, .slots = kSlots, .slot_bytes = kChunk, .survives = true, .placement = {}};

std::vector<std::byte> bytes(size_t n) {
  std::vector<std::byte> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<std::byte>((i * 131 + (i >> 9)) & 0xff);
  return v;
}

std::vector<std::byte> turned(std::vector<std::byte> v) {
  for (std::byte& b : v) b ^= kTurn;
  return v;
}

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

class Operation16 {
 public:
  Operation16(Rig& rig, size_t chunk_count, bool in_place = false)
      : rig_(rig), in_(bytes(chunk_count * kChunk)), send_(in_), recv_(in_.size()), in_place_(in_place) {
    std::byte* const out = in_place ? send_.data() : recv_.data();
    index_ = rig.start(send_.data(), out, in_.size());
  }
  [[nodiscard]] bool ended() const { return rig_.ended(index_); }
  [[nodiscard]] bool right() const { return (in_place_ ? send_ : recv_) == turned(in_); }
  void release() { rig_.table.release(index_); }
  void scribble() { std::ranges::fill(send_, std::byte{0}), std::ranges::fill(recv_, std::byte{0}); }
  [[nodiscard]] std::vector<std::byte> result(size_t chunk) const {
    const auto all = turned(in_);
    return {all.begin() + static_cast<long>(chunk * kChunk),
            all.begin() + static_cast<long>((chunk + 1) * kChunk)};
  }

 private:
  Rig& rig_;
  std::vector<std::byte> in_, send_, recv_;
  bool in_place_;
  uint32_t index_;
};

void break_link(Rig& rig, uint32_t link, FakeLane& lane) {
  lane.endpoint->close(Errc::kReset);
  rig.settle();
  ASSERT_EQ(rig.lost_link, link);
  ASSERT_FALSE(rig.exchange->link(link).bound());
}

TEST(ExchangeResume, PutsAgainWhatTheReducerLacksAndNoMore) {
  for (const bool in_place : {false, true}) {
    for (uint64_t held = 1; held <= kSlots + 1; ++held) {
      SCOPED_TRACE(held);
      Rig rig(kShape);
      Operation16 op(rig, 40, in_place);
      rig.settle();
      rig.lanes[0].answer();  // one result is here, and one more contribution under way
      rig.settle();
      break_link(rig, 0, rig.lanes[0]);
      EXPECT_EQ(rig.endings, 0);

      FakeLane& again = rig.connect(0, kSlots, kChunk);
      ASSERT_TRUE(rig.exchange->link(0).resume().ok());
      rig.settle();
      EXPECT_EQ(again.resume.results_held, 1u);
      EXPECT_EQ(again.resume.incarnation, 99u);
      EXPECT_TRUE(again.seen.empty()) << "before the reducer said what it holds";
      again.ack(held);
      rig.settle();
      EXPECT_EQ(rig.resumed, 1);
      std::vector<uint64_t> expected;
      for (uint64_t s = held; s < kSlots + 1; ++s) expected.push_back(s);
      EXPECT_EQ(sequences(again.seen), expected);
      for (const auto& h : again.seen) EXPECT_TRUE((h.flags & wire::kFlagResent) != 0);
    }
  }
}

TEST(ExchangeResume, GoesOnToTheEndWithTheRightBytes) {
  for (const bool in_place : {false, true}) {
    Rig rig(kShape);
    Operation16 op(rig, 40, in_place);
    rig.settle();
    break_link(rig, 0, rig.lanes[0]);
    FakeLane& again = rig.connect(0, kSlots, kChunk);
    ASSERT_TRUE(rig.exchange->link(0).resume().ok());
    rig.settle();
    again.ack(0);
    rig.settle_answering();
    ASSERT_TRUE(op.ended());
    EXPECT_TRUE(op.right());
  }
}

TEST(ExchangeResume, RefusesCountsThatCannotBe) {
  for (const uint64_t held : {uint64_t{0}, uint64_t{kSlots + 2}, ~uint64_t{0}}) {
    Rig rig(kShape);
    Operation16 op(rig, 40);
    rig.settle();
    rig.lanes[0].answer();
    rig.settle();
    break_link(rig, 0, rig.lanes[0]);
    FakeLane& again = rig.connect(0, kSlots, kChunk);
    ASSERT_TRUE(rig.exchange->link(0).resume().ok());
    rig.settle();
    again.ack(held);
    rig.lost_reason = Errc::kOk;
    rig.settle();
    EXPECT_EQ(rig.lost_reason, Errc::kBadSequence) << held;
    EXPECT_EQ(rig.endings, 0) << "a breach ends the connection, not the session";
  }
}

TEST(ExchangeResume, TakesABadResultForABrokenConnection) {
  Rig rig(kShape);
  Operation16 op(rig, 40);
  rig.settle();
  rig.lanes[0].answer([](wire::FrameHeader& h) { h.chunk += 2; });
  rig.settle();
  EXPECT_EQ(rig.lost_reason, Errc::kBadField);
  EXPECT_EQ(rig.endings, 0);
  EXPECT_EQ(rig.exchange->last_breach().link, 0u);
}

// Two links of two reducers; the second is lost, link 0 takes over all.
void lose_second(Rig& rig) {
  break_link(rig, 1, rig.lanes[1]);
  rig.exchange->stop();
  rig.settle();
}

void restart(Rig& rig, uint64_t base) {
  ASSERT_TRUE(rig.exchange->quiet());
  rig.exchange->restart({.version = 1, .hash = 0xabcdef0011223344, .base = base}, {0});
}

TEST(ExchangeView, MovesTheChunksOfTheLostToThoseLeft) {
  for (const bool in_place : {false, true}) {
    Rig rig(kShape);
    Operation16 op(rig, 40, in_place);
    rig.settle();
    lose_second(rig);
    rig.lanes[0].answer();
    rig.settle();
    EXPECT_EQ(rig.lanes[0].seen.size(), size_t{kSlots}) << "stopped";
    EXPECT_EQ(rig.exchange->first_unfinished(), 1u);
    rig.lanes[0].seen.clear();
    restart(rig, 1);
    rig.settle();
    EXPECT_EQ(rig.lanes[0].view.base_chunk, 1u);
    EXPECT_EQ(rig.lanes[0].view.view_hash, 0xabcdef0011223344u);
    EXPECT_EQ(chunks(rig.lanes[0].seen), (std::vector<uint64_t>{1, 2, 3, 4}));
    EXPECT_EQ(sequences(rig.lanes[0].seen), (std::vector<uint64_t>{0, 1, 2, 3}));
    for (const auto& h : rig.lanes[0].seen) {
      EXPECT_EQ(h.view_version, 1u);
      EXPECT_EQ(h.view_hash, 0x11223344u);
      EXPECT_TRUE((h.flags & wire::kFlagResent) != 0);
      EXPECT_TRUE((h.flags & wire::kFlagKept) == 0);
    }
    rig.settle_answering();
    ASSERT_TRUE(op.ended());
    EXPECT_TRUE(op.right());
    EXPECT_EQ(rig.lanes[0].seen.back().chunk, 39u);
  }
}

// Another rank misses chunk 0, whose result is here: it goes again as a result, from wherever it is kept.
TEST(ExchangeView, ContributesTheResultsItHasToThoseThatLackThem) {
  for (const size_t size : {size_t{2}, size_t{6}, size_t{40}}) {
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(testing::Message() << size << " chunks" << (in_place ? ", in place" : ""));
      Rig rig(kShape);
      Operation16 op(rig, size, in_place);
      rig.settle();
      rig.lanes[0].answer();
      rig.lanes[1].answer();
      rig.settle();
      if (size == 2) {
        ASSERT_TRUE(op.ended());
        op.release();
        op.scribble();
      }
      lose_second(rig);
      EXPECT_EQ(rig.exchange->first_unfinished(), 2u);
      rig.lanes[0].seen.clear();
      restart(rig, 0);
      // One at a time: their payloads are looked at.
      for (uint64_t q = 0; q < 2; ++q) {
        rig.settle();
        ASSERT_GT(rig.lanes[0].seen.size(), q);
        EXPECT_EQ(rig.lanes[0].seen[q].chunk, q);
        EXPECT_TRUE((rig.lanes[0].seen[q].flags & wire::kFlagKept) != 0);
      }
      if (size == 2) {
        EXPECT_EQ(rig.lanes[0].last, op.result(1)) << "kept though the operation is over";
      } else {
        EXPECT_TRUE((rig.lanes[0].seen[2].flags & wire::kFlagKept) == 0);
      }
      // Answers to them are dropped: FakeLane turns them, so they would be wrong.
      rig.settle_answering();
      if (size > 2) {
        ASSERT_TRUE(op.ended());
        EXPECT_TRUE(op.right());
      }
    }
  }
}

TEST(ExchangeView, DropsResultsOfTheOldView) {
  Rig rig(kShape);
  Operation16 op(rig, 40);
  rig.settle();
  lose_second(rig);
  // On their way when the view changes.
  const auto old = rig.lanes[0].waiting;
  restart(rig, 0);
  std::vector<std::byte> junk(kChunk, std::byte{0x11});
  for (wire::FrameHeader h : old) {
    h.type = wire::FrameType::kResult;
    h.flags = 0;
    h.ext_len8 = 0;
    ASSERT_TRUE(rig.lanes[0].endpoint->put(h, {}, {junk.data(), h.length}, h.sequence).ok());
  }
  rig.settle_answering();
  ASSERT_TRUE(op.ended());
  EXPECT_TRUE(op.right());
}

// The rest of it is written where its header said, when the chunk may be done by another connection and the
// caller's buffer be gone.
TEST(ExchangeView, WaitsForTheEndOfAResultThatHasBegun) {
  Rig rig(kShape);
  Operation16 op(rig, 40);
  rig.settle();
  wire::FrameHeader h = rig.lanes[0].waiting.front();
  h.type = wire::FrameType::kResult;
  h.flags = 0;
  h.ext_len8 = 0;
  lose_second(rig);
  ASSERT_TRUE(rig.exchange->quiet());
  Link& link = rig.exchange->link(0);
  transport::Endpoint& unused = *rig.lanes[0].endpoint;
  const transport::Placement place = link.on_header(unused, h, {});
  ASSERT_TRUE(place.status.ok());
  EXPECT_FALSE(rig.exchange->quiet());
  const auto bytes_of_it = op.result(0);
  std::ranges::copy(bytes_of_it, place.payload);
  link.on_frame(unused, h, {}, {place.payload, h.length});
  EXPECT_TRUE(rig.exchange->quiet());
  EXPECT_EQ(rig.exchange->first_unfinished(), 1u);
  // One that never ends is over with its connection.
  h = rig.lanes[0].waiting[1];
  h.type = wire::FrameType::kResult;
  h.flags = 0;
  h.ext_len8 = 0;
  ASSERT_TRUE(link.on_header(unused, h, {}).status.ok());
  EXPECT_FALSE(rig.exchange->quiet());
  break_link(rig, 0, rig.lanes[0]);
  EXPECT_TRUE(rig.exchange->quiet());
}

TEST(ExchangeView, ChangesAgainBeforeTheLastChangeHasSettled) {
  Rig rig({.links = 3, .slots = kSlots, .slot_bytes = kChunk, .survives = true, .placement = {}});
  Operation16 op(rig, 60);
  rig.settle();
  rig.lanes[0].answer();
  rig.lanes[1].answer();
  rig.settle();
  break_link(rig, 2, rig.lanes[2]);
  rig.exchange->stop();
  rig.exchange->restart({.version = 1, .hash = 1, .base = 0}, {0, 1});
  rig.settle();
  break_link(rig, 1, rig.lanes[1]);
  rig.exchange->stop();
  rig.settle();
  rig.lanes[0].seen.clear();
  rig.exchange->restart({.version = 2, .hash = 2, .base = 0}, {0});
  rig.settle();
  ASSERT_GE(rig.lanes[0].seen.size(), 3u);
  EXPECT_TRUE((rig.lanes[0].seen[0].flags & wire::kFlagKept) != 0);
  EXPECT_TRUE((rig.lanes[0].seen[1].flags & wire::kFlagKept) != 0);
  EXPECT_TRUE((rig.lanes[0].seen[2].flags & wire::kFlagKept) == 0);
  rig.settle_answering();
  ASSERT_TRUE(op.ended());
  EXPECT_TRUE(op.right());
}

TEST(ExchangeView, TakesUpALinkThatWasAdded) {
  Rig rig(kShape);
  Operation16 op(rig, 60);
  rig.settle();
  rig.exchange->stop();
  rig.settle();
  const uint32_t link = rig.exchange->add_link({.handle = 9, .slots = kSlots});
  EXPECT_EQ(link, 2u);
  rig.exchange->restart({.version = 1, .hash = 1, .base = 0}, {0, 1, 2});
  FakeLane& added = rig.connect(link, kSlots, kChunk);
  ASSERT_TRUE(rig.exchange->link(link).resume().ok());
  rig.settle();
  EXPECT_EQ(added.resume.version, 1u);
  EXPECT_EQ(added.resume.results_held, 0u);
  added.ack(0);
  rig.settle_answering();
  ASSERT_TRUE(op.ended());
  EXPECT_TRUE(op.right());
  EXPECT_EQ(added.seen.size(), 20u);
}

// The connection was being resumed in the old view: it must not be used in the new one.
TEST(ExchangeView, ClosesAConnectionThatWasNotResumedYet) {
  Rig rig(kShape);
  Operation16 op(rig, 40);
  rig.settle();
  lose_second(rig);
  break_link(rig, 0, rig.lanes[0]);
  rig.connect(0, kSlots, kChunk);
  ASSERT_TRUE(rig.exchange->link(0).resume().ok());
  rig.settle();
  rig.lost_link = kNoLink;
  restart(rig, 0);
  rig.settle();
  EXPECT_EQ(rig.lost_link, 0u);
  FakeLane& again = rig.connect(0, kSlots, kChunk);
  ASSERT_TRUE(rig.exchange->link(0).resume().ok());
  rig.settle();
  EXPECT_EQ(again.resume.version, 1u);
  again.ack(0);
  rig.settle_answering();
  ASSERT_TRUE(op.ended());
  EXPECT_TRUE(op.right());
}

TEST(ExchangeView, GoesOnWithOperationsIssuedWhileItStood) {
  Rig rig(kShape);
  Operation16 first(rig, 6);
  rig.settle();
  lose_second(rig);
  Operation16 second(rig, 5), third(rig, 1);
  rig.settle();
  restart(rig, 0);
  Operation16 fourth(rig, 30, true);
  rig.settle_answering();
  for (const Operation16* op : {&first, &second, &third, &fourth}) {
    ASSERT_TRUE(op->ended());
    EXPECT_TRUE(op->right());
  }
  EXPECT_EQ(rig.exchange->first_unfinished(), 42u);
}

}  // namespace
}  // namespace sluice::engine::test
