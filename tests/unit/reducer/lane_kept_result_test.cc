// Lane with a fault-tolerant session in its next view: chunks whose result a rank has kept, and ranks that
// left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/view_test_bed.h"

namespace sluice::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LaneKeptResult, SendsTheResultThatARankHasKept) {
  for (const uint32_t ranks : {2u, 8u, 9u, 40u}) {
    for (uint32_t kept_by = 0; kept_by < ranks; kept_by += 1 + ranks / 4) {
      ViewTestBed test_bed(ranks);
      test_bed.enter(kNextView, 0, ranks);
      // The other chunks are sums. A second rank may contribute the same kept result.
      for (uint64_t s = 0; s < 6; ++s) {
        if (s == FaultTolerantTestBed::kSlots) test_bed.settle();
        for (uint32_t r = 0; r < ranks; ++r) {
          if (s == 1 && (r == kept_by || r + 1 == kept_by)) {
            test_bed.contribute_kept(r, s, {77.5f});
          } else {
            (void)test_bed.contribute(r, s, {1});
          }
        }
      }
      test_bed.settle();
      const auto n = static_cast<float>(ranks);
      for (uint32_t r = 0; r < ranks; ++r) {
        ASSERT_THAT(test_bed.sequences(r), ElementsAre(0, 1, 2, 3, 4, 5)) << ranks << " " << kept_by;
        for (uint64_t s = 0; s < 6; ++s) {
          EXPECT_EQ(LaneTestBed::floats(test_bed.results(r)[s].payload),
                    std::vector<float>{s == 1 ? 77.5f : n});
        }
        EXPECT_EQ(test_bed.results(r)[1].header.flags, wire::kFlagPayloadCrc);
      }
      EXPECT_EQ(test_bed.lane->counters().kept_results.get(), 1u);
    }
  }
}

TEST(LaneKeptResult, CopiesKeptBytesUnchangedOverSeveralTurns) {
  LaneTestBed test_bed(9, 2, 1 * kMiB, true);
  test_bed.commit_all();
  test_bed.view = kNextView;
  for (uint32_t r = 0; r < 9; ++r) (void)test_bed.send(r, kNextView);
  test_bed.settle();
  // As bf16 these include signaling NaNs and subnormals, which a sum would change.
  std::vector<std::byte> kept(kMiB);
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<std::byte>((i * 2654435761u) >> 24);
  const std::vector<std::byte> other(kept.size());
  for (uint32_t r = 0; r < 9; ++r) {
    wire::FrameHeader h = test_bed.header(0, kept.size() / 2, wire::DType::kBf16);
    if (r == 8) h.flags |= wire::kFlagKept;
    (void)test_bed.ranks[r]->send(h, r == 8 ? kept : other);
    if (r == 7) (void)test_bed.lane->do_work(test_bed.now);
  }
  test_bed.settle();
  for (uint32_t r = 0; r < 9; ++r) {
    ASSERT_EQ(test_bed.results(r).size(), 1u);  // the receiving transport checked the CRC
    EXPECT_EQ(test_bed.results(r)[0].payload, kept);
  }
}

TEST(LaneKeptResult, AKeptResultMustMatchTheOtherContributions) {
  ViewTestBed test_bed(2);
  test_bed.enter(kNextView, 0, 2);
  test_bed.contribute_all(0, 0, 1);
  test_bed.contribute_kept(1, 0, {1, 2});
  const auto failed = test_bed.failures();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].code, Errc::kMismatch);
}

TEST(LaneKeptResult, RefusesKeptResultsInTheFirstView) {
  ViewTestBed test_bed(2);
  test_bed.contribute_kept(1, 0, {1});
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kBadField));
}

TEST(LaneKeptResult, ARankThatLeftRepeatsItsContributionsInTheNextView) {
  ViewTestBed test_bed(3);
  test_bed.contribute_all(0);
  test_bed.contribute_all(1, 0, 1);
  (void)test_bed.events();
  test_bed.session->rank_left(2);
  test_bed.settle();
  ASSERT_THAT(test_bed.failures().size(), 1u) << "within a view no rank may continue without it";

  ViewTestBed moved(3);
  moved.contribute_all(0);
  moved.session->rank_left(2);
  moved.settle();
  moved.enter(kNextView, 0, 2);
  moved.contribute_all(0, 0, 2);
  moved.contribute_all(1, 0, 2);
  EXPECT_THAT(moved.events(), IsEmpty()) << "the rank may still follow";
  moved.view_commit(2, 3);
  moved.contribute_kept(2, 0, {3});
  EXPECT_THAT(moved.sequences(0), ElementsAre(0, 0));
  EXPECT_EQ(moved.last_value(1), 3);
  // The rank disconnects, and the others need its next contribution.
  moved.break_connection(2);
  moved.settle();
  const auto failed = moved.failures();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].code, Errc::kRankLeft);
  EXPECT_EQ(failed[0].rank, 2u);
}

// Rank 9 of 10 has left and disconnected before the others enter the next view.
struct DisconnectedLeaverTestBed : ViewTestBed {
  DisconnectedLeaverTestBed() : ViewTestBed(10) {
    contribute_all(0);
    session->rank_left(9);
    settle();
    break_connection(9);
    (void)events();
    view = kNextView;
    view_commit(0, 9);
  }
};

TEST(LaneKeptResult, ADisconnectedLeaverIsNotNeededIfAnotherRankHasTheResult) {
  DisconnectedLeaverTestBed test_bed;
  for (uint64_t s = 0; s < 6; ++s) {
    test_bed.contribute_all(s, 0, 3);
    test_bed.contribute_kept(3, s, {55});
    test_bed.contribute_all(s, 4, 9);
    ASSERT_EQ(test_bed.results(0).size(), s + 2);
    EXPECT_EQ(test_bed.last_value(0), 55);
  }
  EXPECT_THAT(test_bed.events(), IsEmpty());
  // The rank cannot return, in either view.
  test_bed.view = {.version = 0, .view_hash = test_bed.plan.view_hash, .base_chunk = 0};
  test_bed.resume(9, 1);
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kBadSequence));
  test_bed.view = kNextView;
  test_bed.resume(9, 0);
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kBadSequence));
}

TEST(LaneKeptResult, ResendsAKeptResult) {
  ViewTestBed test_bed(2);
  test_bed.enter(kNextView, 0, 2);
  test_bed.contribute_all(0, 0, 1);
  test_bed.contribute_kept(1, 0, {77.5f});
  test_bed.resume(0, 0);
  EXPECT_EQ(test_bed.last_value(0), 77.5f);
}

TEST(LaneKeptResult, FailsIfOnlyADisconnectedLeaverHadTheResult) {
  DisconnectedLeaverTestBed test_bed;
  test_bed.contribute_all(0, 0, 9);
  const auto failed = test_bed.failures();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].code, Errc::kRankLeft);
  EXPECT_EQ(failed[0].rank, 9u);
  EXPECT_THAT(failed[0].text.data(), HasSubstr("rank 9 left"));
}

TEST(LaneKeptResult, ADisconnectOfTheLastMissingLeaverCompletesChunks) {
  ViewTestBed test_bed(10);
  test_bed.contribute_all(0);
  test_bed.session->rank_left(9);
  test_bed.settle();
  (void)test_bed.events();
  test_bed.enter(kNextView, 0, 9);
  test_bed.contribute_kept(0, 0, {5});
  test_bed.contribute_all(0, 1, 9);
  test_bed.contribute_all(1, 0, 8);
  EXPECT_EQ(test_bed.results(0).size(), 1u) << "rank 9 is connected and may contribute";
  test_bed.break_connection(9);
  EXPECT_EQ(test_bed.results(0).size(), 2u);
  EXPECT_EQ(test_bed.last_value(0), 5);
  EXPECT_THAT(test_bed.failures(), IsEmpty());
  test_bed.contribute_all(1, 8, 9);
  EXPECT_EQ(test_bed.failures().size(), 1u) << "no rank has the result of the second chunk";
}

}  // namespace
}  // namespace sluice::test
