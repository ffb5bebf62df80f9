// Two sessions on one lane: in what order their sums are made, and sums that are held back.
#include <gtest/gtest.h>

#include "tests/support/lane_rig.h"

namespace sluice::test {
namespace {

constexpr uint32_t kSlots = 16;
constexpr uint32_t kSlotBytes = 64 * kKiB;  // four a turn of the lane

// A session beside that of a LaneRig, of one rank, on its lane.
class Neighbour {
 public:
  Neighbour(LaneRig& rig, uint32_t weight)
      : rig_(rig),
        plan_{.handle = 10,
              .ranks = 1,
              .slots = kSlots,
              .slot_bytes = kSlotBytes,
              .view_version = 0,
              .view_hash = rig.plan.view_hash,
              .weight = weight},
        session_(plan_, *reducer::SlotArena::map(plan_)) {
    rig.far.push_back(rig.network->make_context());
    auto [near_end, far_end] = rig.network->connect(rig.lane->context(), session_.link(0), *rig.far.back(),
                                                    rank_, rig.lane->endpoint_options(plan_));
    rank_.endpoint = far_end;
    rig.lane->attach(session_, 0, *near_end);
    const auto body = wire::encode_body(wire::Commit{.incarnation = LaneRig::kIncarnation});
    (void)rank_.send(wire::control_header(wire::Commit::kType, body, plan_.handle), body);
  }
  void contribute(uint64_t sequence, size_t count) {
    const std::vector<float> values(count, 1.0f);
    std::vector<std::byte> ext(wire::kSmallExtensionBytes);
    wire::encode_extension(wire::OpInfo{.count = count}, wire::SmallExtension(ext));
    wire::FrameHeader h = rig_.header(sequence, count);
    h.session = plan_.handle;
    h.slot = static_cast<uint16_t>(sequence % kSlots);
    ASSERT_TRUE(rank_.send(h, LaneRig::bytes(values), ext).ok());
  }
  void take_in() {
    while (rig_.far.back()->poll(rig_.now, kMiB) != 0) {
    }
  }
  reducer::Meter& meter() { return session_.meter(); }
  [[nodiscard]] size_t results() const { return rank_.arrived.size(); }

 private:
  LaneRig& rig_;
  const reducer::SessionPlan plan_;
  reducer::LaneSession session_;
  ScriptedRank rank_;
};

class LaneFairTest : public ::testing::Test {
 protected:
  // `weight` of the neighbour; the rig's session, of one rank too, has 1.
  void begin(uint32_t weight) {
    rig = std::make_unique<LaneRig>(1, kSlots, kSlotBytes);
    rig->commit_all();
    neighbour = std::make_unique<Neighbour>(*rig, weight);
    turn();
  }
  void TearDown() override { rig->lane.reset(); }  // its endpoints refer to the neighbour

  // Both have a window of chunks in their slots, and none has been folded.
  void fill(size_t count_of_first, size_t count_of_neighbour) {
    rig->session->meter().set_limit(0);
    neighbour->meter().set_limit(0);
    const std::vector<float> values(count_of_first, 1.0f);
    for (uint32_t i = 0; i < kSlots; ++i) {
      ASSERT_TRUE(rig->contribute(0, next_first_++, values).ok());
      neighbour->contribute(next_neighbour_++, count_of_neighbour);
    }
    for (int i = 0; i < 64; ++i) turn();
    rig->session->meter().set_limit(reducer::Meter::kNoLimit);
    neighbour->meter().set_limit(reducer::Meter::kNoLimit);
  }
  void turn() { (void)rig->lane->do_work(rig->now); }
  [[nodiscard]] uint64_t chunks(reducer::Meter& meter) const { return meter.served() / kSlotBytes; }

  static constexpr size_t kFull = kSlotBytes / sizeof(float);
  std::unique_ptr<LaneRig> rig;
  std::unique_ptr<Neighbour> neighbour;

 private:
  uint64_t next_first_ = 0, next_neighbour_ = 0;
};

TEST_F(LaneFairTest, SumsAreMadeByWeight) {
  begin(3);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  for (int i = 0; i < 4; ++i) turn();
  EXPECT_EQ(chunks(rig->session->meter()) + chunks(neighbour->meter()), 16u);
  EXPECT_NEAR(static_cast<double>(chunks(neighbour->meter())), 12, 1);
}

TEST_F(LaneFairTest, LittleDoesNotWaitForMuch) {
  begin(1);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, 16));
  turn();
  neighbour->take_in();
  EXPECT_EQ(neighbour->results(), kSlots);
  EXPECT_LE(chunks(rig->session->meter()), 4u);
}

TEST_F(LaneFairTest, WhoHadNothingToSumHasNoClaimToThatTime) {
  begin(1);
  const std::vector<float> values(kFull, 1.0f);
  for (uint64_t s = 0; s < 3 * kSlots; ++s) {
    ASSERT_TRUE(rig->contribute(0, s, values).ok());
    rig->settle();
  }
  const uint64_t before = chunks(rig->session->meter());
  ASSERT_EQ(before, 3 * kSlots);
  rig->session->meter().set_limit(0);
  neighbour->meter().set_limit(0);
  for (uint32_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(rig->contribute(0, 3 * kSlots + i, values).ok());
    neighbour->contribute(i, kFull);
  }
  for (int i = 0; i < 64; ++i) turn();
  rig->session->meter().set_limit(reducer::Meter::kNoLimit);
  neighbour->meter().set_limit(reducer::Meter::kNoLimit);
  for (int i = 0; i < 2; ++i) turn();
  EXPECT_EQ(chunks(neighbour->meter()), 4u);
  EXPECT_EQ(chunks(rig->session->meter()) - before, 4u);
}

TEST_F(LaneFairTest, WhatIsHeldBackWaitsAndNobodyElseDoes) {
  begin(1);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  neighbour->meter().set_limit(2 * kSlotBytes);
  for (int i = 0; i < 64; ++i) turn();
  EXPECT_EQ(chunks(neighbour->meter()), 2u);
  EXPECT_EQ(chunks(rig->session->meter()), kSlots);
  EXPECT_TRUE(neighbour->meter().held());
  EXPECT_FALSE(rig->session->meter().held());
  // It comes round by itself for the limit to be lifted.
  EXPECT_EQ(rig->lane->idle_limit(), reducer::FairShares::kTurn);
  neighbour->meter().set_limit(reducer::Meter::kNoLimit);
  for (int i = 0; i < 64; ++i) turn();
  EXPECT_EQ(chunks(neighbour->meter()), kSlots);
  EXPECT_FALSE(neighbour->meter().held());
  EXPECT_GT(rig->lane->idle_limit(), reducer::FairShares::kTurn);
}

TEST_F(LaneFairTest, WhoWasHeldBackHasNoClaimToThatTime) {
  begin(1);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  neighbour->meter().set_limit(2 * kSlotBytes);
  rig->settle();
  rig->session->meter().set_limit(0);
  const std::vector<float> values(kFull, 1.0f);
  for (uint32_t i = 0; i < kSlots; ++i) ASSERT_TRUE(rig->contribute(0, kSlots + i, values).ok());
  for (int i = 0; i < 64; ++i) turn();
  ASSERT_EQ(chunks(rig->session->meter()), kSlots);
  rig->session->meter().set_limit(reducer::Meter::kNoLimit);
  neighbour->meter().set_limit(reducer::Meter::kNoLimit);
  for (int i = 0; i < 2; ++i) turn();
  EXPECT_EQ(chunks(neighbour->meter()), 2u + 4u);
  EXPECT_EQ(chunks(rig->session->meter()), kSlots + 4u);
}

// Three groups: twenty contributions, then three partial sums.
TEST_F(LaneFairTest, WhatWasReadForASumIsWhatItCounts) {
  rig = std::make_unique<LaneRig>(20, kSlots, kSlotBytes);
  rig->commit_all();
  for (uint32_t rank = 0; rank < 20; ++rank)
    ASSERT_TRUE(rig->contribute(rank, 0, std::vector<float>(kFull, 1.0f)).ok());
  rig->settle();
  EXPECT_EQ(rig->session->fold_time(), 23.0 * kSlotBytes);
}

// A session that ends while it is held back is let go like any other.
TEST_F(LaneFairTest, AnEndDoesNotWaitForTheLimit) {
  begin(1);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  rig->session->meter().set_limit(0);
  (void)rig->lane->command({.kind = reducer::LaneCommand::Kind::kEnd, .session = rig->session.get()});
  rig->settle();
  const auto events = rig->events();
  EXPECT_TRUE(std::ranges::any_of(
      events, [](const auto& e) { return e.kind == reducer::LaneEvent::Kind::kReleased; }));
  EXPECT_EQ(rig->lane->session_count(), 1u);
}

}  // namespace
}  // namespace sluice::test
