// Lane with a fault-tolerant session that enters its next view: dropped state and ranks that follow late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/view_test_bed.h"

namespace sluice::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LaneView, DropsThePartialSumsOfTheOldView) {
  ViewTestBed test_bed(17);
  test_bed.contribute_all(0);
  test_bed.contribute_all(1, 0, 10);  // one group is complete, one is not
  test_bed.contribute_all(2, 0, 8);
  test_bed.enter(kNextView, 0, 17);
  EXPECT_EQ(test_bed.session->missing().count, 0u);
  for (uint64_t s = 0; s < 10; ++s) test_bed.contribute_all(s);
  for (uint32_t r = 0; r < 17; ++r) {
    const auto results = test_bed.results(r);
    ASSERT_EQ(results.size(), 11u);
    for (uint64_t s = 0; s < 10; ++s) {
      EXPECT_EQ(results[1 + s].header.sequence, s);
      EXPECT_EQ(results[1 + s].header.view_version, 1u);
      EXPECT_EQ(results[1 + s].header.view_hash, 0x77u);
      EXPECT_EQ(LaneTestBed::floats(results[1 + s].payload),
                std::vector<float>{17 * static_cast<float>(s + 1)});
    }
  }
  EXPECT_EQ(test_bed.lane->counters().view_moves.get(), 1u);
  EXPECT_EQ(test_bed.lane->counters().contributions_dropped.get(), 0u);
  EXPECT_THAT(test_bed.events(), IsEmpty());
}

TEST(LaneView, DropsACompleteChunkThatIsNotFolded) {
  ViewTestBed test_bed(3);
  for (uint32_t r = 0; r < 3; ++r) (void)test_bed.contribute(r, 0, {1});
  test_bed.enter(kNextView, 2, 3);  // arrives right after the last contribution
  EXPECT_THAT(test_bed.sequences(0), IsEmpty());
  test_bed.view_commit(0, 2);
  for (uint32_t r = 0; r < 3; ++r) (void)test_bed.contribute(r, 0, {10});
  test_bed.settle();
  EXPECT_THAT(test_bed.sequences(0), ElementsAre(0));
  EXPECT_EQ(test_bed.last_value(0), 30);
}

TEST(LaneView, DropsAHalfFinishedFold) {
  LaneTestBed test_bed(3, 2, 1 * kMiB, true);
  test_bed.commit_all();
  std::vector<float> values(kMiB / sizeof(float), 1.0f);
  for (uint32_t r = 0; r < 3; ++r) (void)test_bed.contribute(r, 0, values);
  (void)test_bed.lane->do_work(test_bed.now);
  ASSERT_TRUE(test_bed.session->has_folds());
  ASSERT_GT(test_bed.lane->counters().bytes_folded(), 0u);
  test_bed.view = kNextView;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  for (uint32_t r = 0; r < 3; ++r) {
    (void)test_bed.send(r, kNextView);
    (void)test_bed.contribute(r, 0, values);
  }
  test_bed.settle();
  for (float& v : values) v *= 3;
  ASSERT_EQ(test_bed.results(0).size(), 1u);  // the receiving transport checked the CRC
  EXPECT_EQ(LaneTestBed::floats(test_bed.results(0)[0].payload), values);
}

TEST(LaneView, DropsContributionsOfRanksThatAreBehind) {
  ViewTestBed test_bed(3);
  test_bed.contribute_all(0, 0, 1);
  test_bed.enter(kNextView, 0, 1);
  (void)test_bed.contribute(0, 0, {10});
  // Rank 1 still sends a window of the old view; rank 2 sends nothing.
  const auto current =
      std::exchange(test_bed.view, {.version = 0, .view_hash = test_bed.plan.view_hash, .base_chunk = 0});
  for (uint64_t s = 0; s < FaultTolerantTestBed::kSlots; ++s) test_bed.contribute_all(s, 1, 2);
  test_bed.view = current;
  test_bed.advance(kSecond);
  test_bed.settle();
  EXPECT_THAT(test_bed.session->missing().ranks[0], 1u);
  EXPECT_EQ(test_bed.session->missing().count, 2u);
  EXPECT_EQ(test_bed.lane->counters().contributions_dropped.get(), FaultTolerantTestBed::kSlots);
  test_bed.view_commit(1, 3);
  (void)test_bed.contribute(1, 0, {10});
  test_bed.settle();
  EXPECT_THAT(test_bed.sequences(0), IsEmpty());
  (void)test_bed.contribute(2, 0, {10});
  test_bed.settle();
  for (uint32_t r = 0; r < 3; ++r) {
    ASSERT_EQ(test_bed.results(r).size(), 1u);
    EXPECT_EQ(test_bed.last_value(r), 30);
  }
  EXPECT_EQ(test_bed.lane->counters().view_moves.get(), 1u);
  EXPECT_THAT(test_bed.events(), IsEmpty());
}

TEST(LaneView, LimitsARankThatIsBehindToItsOldCredit) {
  ViewTestBed test_bed(2, 2);
  test_bed.enter(kNextView, 0, 1);
  test_bed.view = {.version = 0, .view_hash = test_bed.plan.view_hash, .base_chunk = 0};
  for (uint64_t s = 0; s < 3; ++s) test_bed.contribute_all(s, 1, 2);
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kSlotNotGranted));
  // The rank resumes in the old view, where nothing is resent, and then follows.
  test_bed.resume(1, 0);
  EXPECT_EQ(test_bed.contributions_held(1), 2u);
  test_bed.enter(kNextView, 1, 2);
  test_bed.contribute_all(0);
  EXPECT_THAT(test_bed.sequences(1), ElementsAre(0));
}

TEST(LaneView, OverwritesNoResultThatTheTransportStillSends) {
  ViewTestBed test_bed(2, 2);
  test_bed.block(1);
  for (uint64_t s = 0; s < 2; ++s) {
    for (uint32_t r = 0; r < 2; ++r) (void)test_bed.contribute(r, s, {static_cast<float>(s + 1)});
  }
  test_bed.settle();
  ASSERT_EQ(test_bed.results(0).size(), 2u);
  test_bed.enter(kNextView, 0, 1);
  (void)test_bed.send(1, kNextView);
  for (uint32_t r = 0; r < 2; ++r) (void)test_bed.contribute(r, 0, {100});
  test_bed.settle();
  EXPECT_EQ(test_bed.results(0).size(), 2u) << "folds wait";
  EXPECT_FALSE(test_bed.session->has_folds());
  EXPECT_EQ(test_bed.lane->do_work(test_bed.now), 0u) << "the lane may sleep meanwhile";
  test_bed.block(1, false);
  test_bed.settle();
  std::vector<float> got;
  for (const auto& r : test_bed.results(1)) got.push_back(LaneTestBed::floats(r.payload).at(0));
  EXPECT_THAT(got, ElementsAre(2, 4, 200));
  EXPECT_EQ(test_bed.results(0).size(), 3u);
  // Results of the old view give no credit in the new one.
  for (uint64_t s = 1; s < 4; ++s) (void)test_bed.contribute(1, s, {1});
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kSlotNotGranted));
}

TEST(LaneView, ABrokenConnectionReleasesItsPendingResults) {
  ViewTestBed test_bed(2, 2);
  test_bed.block(1);
  for (uint32_t r = 0; r < 2; ++r) (void)test_bed.contribute(r, 0, {1});
  test_bed.settle();
  test_bed.enter(kNextView, 0, 1);
  test_bed.contribute_all(0, 0, 1);
  test_bed.reconnect(1);
  test_bed.block(1, false);
  test_bed.settle();
  test_bed.send_resume(1, 0);
  test_bed.contribute_all(0, 1, 2);
  EXPECT_THAT(test_bed.sequences(1), ElementsAre(0));
  EXPECT_EQ(test_bed.last_value(1), 2);
}

TEST(LaneView, ResumeAlsoEntersAView) {
  ViewTestBed test_bed(2);
  test_bed.contribute_all(0);
  test_bed.contribute_all(1, 0, 1);
  test_bed.view = kNextView;
  test_bed.resume(1, 0);
  EXPECT_EQ(test_bed.contributions_held(1), 0u);
  EXPECT_THAT(test_bed.sequences(1), IsEmpty());
  EXPECT_EQ(test_bed.lane->counters().view_moves.get(), 1u);
  test_bed.view_commit(0, 1);
  for (uint64_t s = 0; s < 6; ++s) test_bed.contribute_all(s);
  test_bed.resume(0, 3);
  EXPECT_THAT(test_bed.sequences(0), ElementsAre(3, 4, 5)) << "results of the new view";
  EXPECT_EQ(test_bed.last_value(0), 12);
}

TEST(LaneView, RanksMaySkipAView) {
  ViewTestBed test_bed(3);
  test_bed.contribute_all(0, 0, 2);
  test_bed.enter(kNextView, 0, 2);
  test_bed.contribute_all(0, 0, 2);
  test_bed.enter(kLaterView, 0, 1);
  test_bed.contribute_all(0, 0, 1);
  // Rank 2 is still in the first view. The contribution of rank 1 to the second view is dropped.
  test_bed.view = kNextView;
  test_bed.contribute_all(1, 1, 2);
  EXPECT_EQ(test_bed.lane->counters().contributions_dropped.get(), 1u);
  test_bed.enter(kLaterView, 1, 3);
  test_bed.contribute_all(0, 1, 3);
  for (uint32_t r = 0; r < 3; ++r) EXPECT_THAT(test_bed.sequences(r), ElementsAre(0));
  EXPECT_EQ(test_bed.lane->counters().view_moves.get(), 2u);
  EXPECT_THAT(test_bed.events(), IsEmpty());
}

TEST(LaneView, ARankMayEnterAViewThatTheSessionHasLeft) {
  for (const bool by_resume : {false, true}) {
    ViewTestBed test_bed(2);
    test_bed.enter(kLaterView, 0, 1);
    test_bed.view = kNextView;
    if (by_resume) {
      test_bed.resume(1, 0);
    } else {
      test_bed.view_commit(1, 2);
    }
    test_bed.contribute_all(0, 1, 2);
    EXPECT_EQ(test_bed.lane->counters().contributions_dropped.get(), 1u);
    test_bed.enter(kLaterView, 1, 2);
    test_bed.contribute_all(0);
    EXPECT_THAT(test_bed.sequences(1), ElementsAre(0));
    EXPECT_EQ(test_bed.lane->counters().view_moves.get(), 1u);
    EXPECT_THAT(test_bed.closed(), IsEmpty());
  }
}

struct BadView {
  const char* name;
  wire::ViewCommit commit;
};
class LaneBadViewTest : public ::testing::TestWithParam<BadView> {};

// Rank 1 is in the first view; rank 0 has moved the session to the third.
TEST_P(LaneBadViewTest, ClosesTheConnection) {
  for (const bool by_resume : {false, true}) {
    ViewTestBed test_bed(2);
    test_bed.enter(kNextView, 0, 1);
    test_bed.enter(kLaterView, 0, 1);
    test_bed.view = GetParam().commit;
    if (by_resume) {
      test_bed.resume(1, 0);
      EXPECT_EQ(test_bed.ranks[1]->arrived.size(), 0u);
    } else {
      test_bed.view_commit(1, 2);
    }
    EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kBadView));
    test_bed.view = kLaterView;
    test_bed.resume(1, 0);
    test_bed.contribute_all(0);
    EXPECT_EQ(test_bed.last_value(1), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Messages, LaneBadViewTest,
                         ::testing::Values(BadView{"hash", {2, 0x89, 5}}, BadView{"base", {2, 0x88, 6}},
                                           BadView{"first", {0, 0x99, 0}}),
                         [](const auto& tested) { return tested.param.name; });

TEST(LaneView, RefusesTheCurrentViewOfTheRank) {
  ViewTestBed test_bed(2);
  test_bed.enter(kNextView, 1, 2);
  test_bed.view_commit(1, 2);
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kBadView));
}

TEST(LaneView, RefusesFramesOfAnotherView) {
  for (const bool moved : {false, true}) {
    ViewTestBed test_bed(2);
    test_bed.enter(kNextView, moved ? 1 : 0, moved ? 2 : 1);
    if (moved) test_bed.view = {.version = 0, .view_hash = test_bed.plan.view_hash, .base_chunk = 0};
    test_bed.contribute_all(0, 1, 2);
    EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kBadView)) << moved;
  }
}

TEST(LaneView, SessionsWithoutFaultToleranceRefuseItsFrames) {
  const auto refused = [](auto frame) {
    LaneTestBed test_bed(2);
    test_bed.commit_all();
    frame(test_bed);
    test_bed.settle();
    const auto events = test_bed.events();
    EXPECT_EQ(events.size(), 1u);
    EXPECT_FALSE(test_bed.ranks[0]->closed.has_value());
    return events.at(0).code;
  };
  EXPECT_EQ(refused([](LaneTestBed& test_bed) { (void)test_bed.send(1, kNextView); }),
            Errc::kUnexpectedMessage);
  EXPECT_EQ(
      refused([](LaneTestBed& test_bed) {
        (void)test_bed.send(
            1, wire::Resume{
                   .incarnation = 77, .version = 0, .view_hash = 0x1234, .base_chunk = 0, .results_held = 0});
      }),
      Errc::kUnexpectedMessage);
  EXPECT_EQ(refused([](LaneTestBed& test_bed) {
              wire::FrameHeader h = test_bed.header(0, 1);
              h.flags |= wire::kFlagKept;
              (void)test_bed.ranks[1]->send(h, LaneTestBed::bytes({1}));
            }),
            Errc::kBadField);
  LaneTestBed uncommitted(1);
  (void)uncommitted.send(
      0,
      wire::Resume{.incarnation = 77, .version = 0, .view_hash = 0x1234, .base_chunk = 0, .results_held = 0});
  uncommitted.settle();
  EXPECT_EQ(uncommitted.events().at(0).code, Errc::kUnexpectedMessage);
}

}  // namespace
}  // namespace sluice::test
