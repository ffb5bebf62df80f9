// Two sessions on one lane: the order of their folds, and folds that the fair shares hold back.
#include <gtest/gtest.h>

#include "tests/support/lane_test_bed.h"

namespace sluice::test {
namespace {

constexpr uint32_t kSlots = 16;
constexpr uint32_t kSlotBytes = 64 * kKiB;  // four per turn of the lane

// A second session, of one rank, on the lane of a LaneTestBed.
class SecondSession {
 public:
  SecondSession(LaneTestBed& test_bed, uint32_t weight)
      : test_bed_(test_bed),
        plan_{.handle = 10,
              .ranks = 1,
              .slots = kSlots,
              .slot_bytes = kSlotBytes,
              .view_version = 0,
              .view_hash = test_bed.plan.view_hash,
              .weight = weight},
        session_(plan_, *reducer::SlotArena::map(plan_)) {
    test_bed.far.push_back(test_bed.network->make_context());
    auto [near_end, far_end] =
        test_bed.network->connect(test_bed.lane->context(), session_.connection(0), *test_bed.far.back(),
                                  rank_, test_bed.lane->endpoint_options(plan_));
    rank_.endpoint = far_end;
    test_bed.lane->attach(session_, 0, *near_end);
    const auto body = wire::encode_body(wire::Commit{.incarnation = LaneTestBed::kIncarnation});
    (void)rank_.send(wire::control_header(wire::Commit::kType, body, plan_.handle), body);
  }
  void contribute(uint64_t sequence, size_t count) {
    const std::vector<float> values(count, 1.0f);
    std::vector<std::byte> ext(wire::kSmallExtensionBytes);
    wire::encode_extension(wire::OpInfo{.count = count}, wire::SmallExtension(ext));
    wire::FrameHeader h = test_bed_.header(sequence, count);
    h.session = plan_.handle;
    h.slot = static_cast<uint16_t>(sequence % kSlots);
    ASSERT_TRUE(rank_.send(h, LaneTestBed::bytes(values), ext).ok());
  }
  void receive_all() {
    while (test_bed_.far.back()->poll(test_bed_.now, kMiB) != 0) {
    }
  }
  reducer::Meter& meter() { return session_.meter(); }
  [[nodiscard]] size_t results() const { return rank_.arrived.size(); }

 private:
  LaneTestBed& test_bed_;
  const reducer::SessionPlan plan_;
  reducer::LaneSession session_;
  ScriptedRank rank_;
};

class LaneFairTest : public ::testing::Test {
 protected:
  // `weight` is that of the second session; the first one has weight 1. Both have one rank.
  void begin(uint32_t weight) {
    test_bed = std::make_unique<LaneTestBed>(1, kSlots, kSlotBytes);
    test_bed->commit_all();
    second = std::make_unique<SecondSession>(*test_bed, weight);
    turn();
  }
  void TearDown() override { test_bed->lane.reset(); }  // its endpoints refer to the second session

  // Fills the slots of both sessions with chunks that are not folded yet.
  void fill(size_t count_of_first, size_t count_of_second) {
    limit_both(0);
    const std::vector<float> values(count_of_first, 1.0f);
    for (uint32_t i = 0; i < kSlots; ++i) {
      ASSERT_TRUE(test_bed->contribute(0, next_sequence_++, values).ok());
      second->contribute(next_second_sequence_++, count_of_second);
    }
    for (int i = 0; i < 64; ++i) turn();
    limit_both(reducer::Meter::kNoLimit);
  }
  void limit_both(uint64_t served) {
    test_bed->session->meter().set_limit(served);
    second->meter().set_limit(served);
  }
  void turn() { (void)test_bed->lane->do_work(test_bed->now); }
  [[nodiscard]] uint64_t chunks(reducer::Meter& meter) const { return meter.served() / kSlotBytes; }

  static constexpr size_t kFull = kSlotBytes / sizeof(float);
  std::unique_ptr<LaneTestBed> test_bed;
  std::unique_ptr<SecondSession> second;
  uint64_t next_sequence_ = 0, next_second_sequence_ = 0;
};

TEST_F(LaneFairTest, FoldsByWeight) {
  begin(3);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  for (int i = 0; i < 4; ++i) turn();
  EXPECT_EQ(chunks(test_bed->session->meter()) + chunks(second->meter()), 16u);
  EXPECT_NEAR(static_cast<double>(chunks(second->meter())), 12, 1);
}

TEST_F(LaneFairTest, SmallFoldsDoNotWaitForLargeOnes) {
  begin(1);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, 16));
  turn();
  second->receive_all();
  EXPECT_EQ(second->results(), kSlots);
  EXPECT_LE(chunks(test_bed->session->meter()), 4u);
}

TEST_F(LaneFairTest, ASessionWithoutFoldsAccumulatesNoClaim) {
  begin(1);
  const std::vector<float> values(kFull, 1.0f);
  while (next_sequence_ < 3 * kSlots) {
    ASSERT_TRUE(test_bed->contribute(0, next_sequence_++, values).ok());
    test_bed->settle();
  }
  const uint64_t before = chunks(test_bed->session->meter());
  ASSERT_EQ(before, 3 * kSlots);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  for (int i = 0; i < 2; ++i) turn();
  EXPECT_EQ(chunks(second->meter()), 4u);
  EXPECT_EQ(chunks(test_bed->session->meter()) - before, 4u);
}

TEST_F(LaneFairTest, ALimitHoldsBackOnlyItsSession) {
  begin(1);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  second->meter().set_limit(2 * kSlotBytes);
  for (int i = 0; i < 64; ++i) turn();
  EXPECT_EQ(chunks(second->meter()), 2u);
  EXPECT_EQ(chunks(test_bed->session->meter()), kSlots);
  EXPECT_TRUE(second->meter().held());
  EXPECT_FALSE(test_bed->session->meter().held());
  // The lane wakes up to see a changed limit.
  EXPECT_EQ(test_bed->lane->idle_limit(), reducer::FairShares::kUpdateInterval);
  second->meter().set_limit(reducer::Meter::kNoLimit);
  for (int i = 0; i < 64; ++i) turn();
  EXPECT_EQ(chunks(second->meter()), kSlots);
  EXPECT_FALSE(second->meter().held());
  // It wakes up once more, so that the shares learn soon of the last bytes.
  EXPECT_EQ(test_bed->lane->idle_limit(), reducer::FairShares::kUpdateInterval);
  test_bed->advance(reducer::FairShares::kUpdateInterval);
  turn();
  EXPECT_GT(test_bed->lane->idle_limit(), reducer::FairShares::kUpdateInterval);
}

TEST_F(LaneFairTest, AHeldSessionAccumulatesNoClaim) {
  begin(1);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  second->meter().set_limit(2 * kSlotBytes);
  test_bed->settle();
  test_bed->session->meter().set_limit(0);
  const std::vector<float> values(kFull, 1.0f);
  for (uint32_t i = 0; i < kSlots; ++i) ASSERT_TRUE(test_bed->contribute(0, kSlots + i, values).ok());
  for (int i = 0; i < 64; ++i) turn();
  ASSERT_EQ(chunks(test_bed->session->meter()), kSlots);
  limit_both(reducer::Meter::kNoLimit);
  for (int i = 0; i < 2; ++i) turn();
  EXPECT_EQ(chunks(second->meter()), 2u + 4u);
  EXPECT_EQ(chunks(test_bed->session->meter()), kSlots + 4u);
}

// Three groups: twenty contributions and three partial sums are read.
TEST_F(LaneFairTest, VirtualTimeCountsTheBytesRead) {
  test_bed = std::make_unique<LaneTestBed>(20, kSlots, kSlotBytes);
  test_bed->commit_all();
  for (uint32_t rank = 0; rank < 20; ++rank)
    ASSERT_TRUE(test_bed->contribute(rank, 0, std::vector<float>(kFull, 1.0f)).ok());
  test_bed->settle();
  EXPECT_EQ(test_bed->session->virtual_time(), 23.0 * kSlotBytes);
}

// The limit does not delay the end of a session.
TEST_F(LaneFairTest, AHeldSessionEndsAtOnce) {
  begin(1);
  ASSERT_NO_FATAL_FAILURE(fill(kFull, kFull));
  test_bed->session->meter().set_limit(0);
  (void)test_bed->lane->command(
      {.kind = reducer::LaneCommand::Kind::kEnd, .session = test_bed->session.get()});
  test_bed->settle();
  const auto events = test_bed->events();
  EXPECT_TRUE(std::ranges::any_of(
      events, [](const auto& e) { return e.kind == reducer::LaneEvent::Kind::kReleased; }));
  EXPECT_EQ(test_bed->lane->session_count(), 1u);
}

}  // namespace
}  // namespace sluice::test
