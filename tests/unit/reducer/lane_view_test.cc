// A surviving session on a lane that moves to its next view: what of the old one is dropped, what is waited
// for, and chunks whose result a rank has kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/surviving_rig.h"

namespace sluice::test {
namespace {

using reducer::LaneEvent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr wire::ViewCommit kNext{.version = 1, .view_hash = 0xfeedface00000077, .base_chunk = 3};
constexpr wire::ViewCommit kAfter{.version = 2, .view_hash = 0x88, .base_chunk = 5};

struct ViewRig : SurvivingRig {
  using SurvivingRig::SurvivingRig;
  // The float that every element of the rank's last result is.
  [[nodiscard]] std::optional<float> last(uint32_t rank) const {
    const auto all = results(rank);
    return all.empty() ? std::nullopt : std::optional(floats(all.back().payload).at(0));
  }
  void contribute_kept(uint32_t rank, uint64_t sequence, const std::vector<float>& result) {
    wire::FrameHeader h = header(sequence, result.size());
    h.flags |= wire::kFlagKept;
    (void)ranks[rank]->send(h, bytes(result));
    settle();
  }
  [[nodiscard]] std::vector<LaneEvent> failures() {
    auto all = events();
    std::erase_if(all, [](const LaneEvent& e) { return e.kind != LaneEvent::Kind::kFailed; });
    return all;
  }
};

TEST(LaneView, StartsAnewWithoutWhatTheOldViewHadSummed) {
  ViewRig rig(17);
  rig.contribute_all(0);
  rig.contribute_all(1, 0, 10);  // one group is summed, one is not
  rig.contribute_all(2, 0, 8);
  rig.view = kNext;
  rig.view_commit(0, 17);
  EXPECT_EQ(rig.session->missing().count, 0u);
  for (uint64_t s = 0; s < 10; ++s) rig.contribute_all(s);
  for (uint32_t r = 0; r < 17; ++r) {
    const auto results = rig.results(r);
    ASSERT_EQ(results.size(), 11u);
    for (uint64_t s = 0; s < 10; ++s) {
      EXPECT_EQ(results[1 + s].header.sequence, s);
      EXPECT_EQ(results[1 + s].header.view_version, 1u);
      EXPECT_EQ(results[1 + s].header.view_hash, 0x77u);
      EXPECT_EQ(LaneRig::floats(results[1 + s].payload), std::vector<float>{17 * static_cast<float>(s + 1)});
    }
  }
  EXPECT_EQ(rig.lane->counters().view_moves.get(), 1u);
  EXPECT_EQ(rig.lane->counters().contributions_dropped.get(), 0u);
  EXPECT_THAT(rig.events(), IsEmpty());
}

TEST(LaneView, DropsWhatWasCompleteButNotSummed) {
  ViewRig rig(3);
  for (uint32_t r = 0; r < 3; ++r) (void)rig.contribute(r, 0, {1});
  rig.view = kNext;
  rig.view_commit(2, 3);  // on its way behind the last contribution
  EXPECT_THAT(rig.sequences(0), IsEmpty());
  rig.view_commit(0, 2);
  for (uint32_t r = 0; r < 3; ++r) (void)rig.contribute(r, 0, {10});
  rig.settle();
  EXPECT_THAT(rig.sequences(0), ElementsAre(0));
  EXPECT_EQ(rig.last(0), 30);
}

TEST(LaneView, DropsASumThatIsHalfMade) {
  LaneRig rig(3, 2, 1 * kMiB, true);
  rig.commit_all();
  std::vector<float> values(kMiB / sizeof(float), 1.0f);
  for (uint32_t r = 0; r < 3; ++r) (void)rig.contribute(r, 0, values);
  (void)rig.lane->do_work(rig.now);
  ASSERT_TRUE(rig.session->has_folds());
  ASSERT_GT(rig.lane->counters().bytes_folded(), 0u);
  rig.view = kNext;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  for (uint32_t r = 0; r < 3; ++r) {
    (void)rig.send(r, kNext);
    (void)rig.contribute(r, 0, values);
  }
  rig.settle();
  for (float& v : values) v *= 3;
  ASSERT_EQ(rig.results(0).size(), 1u);  // the receiving transport checked the CRC
  EXPECT_EQ(LaneRig::floats(rig.results(0)[0].payload), values);
}

TEST(LaneView, DropsWhatRanksThatAreBehindContribute) {
  ViewRig rig(3);
  rig.contribute_all(0, 0, 1);
  rig.view = kNext;
  rig.view_commit(0, 1);
  (void)rig.contribute(0, 0, {10});
  // Rank 1 has a window of the old view under way, rank 2 nothing.
  const auto now = std::exchange(rig.view, {.version = 0, .view_hash = rig.plan.view_hash, .base_chunk = 0});
  for (uint64_t s = 0; s < SurvivingRig::kSlots; ++s) rig.contribute_all(s, 1, 2);
  rig.view = now;
  rig.advance(kSecond);
  rig.settle();
  EXPECT_THAT(rig.session->missing().ranks[0], 1u);
  EXPECT_EQ(rig.session->missing().count, 2u);
  EXPECT_EQ(rig.lane->counters().contributions_dropped.get(), SurvivingRig::kSlots);
  rig.view_commit(1, 3);
  (void)rig.contribute(1, 0, {10});
  rig.settle();
  EXPECT_THAT(rig.sequences(0), IsEmpty());
  (void)rig.contribute(2, 0, {10});
  rig.settle();
  for (uint32_t r = 0; r < 3; ++r) {
    ASSERT_EQ(rig.results(r).size(), 1u);
    EXPECT_EQ(rig.last(r), 30);
  }
  EXPECT_EQ(rig.lane->counters().view_moves.get(), 1u);
  EXPECT_THAT(rig.events(), IsEmpty());
}

TEST(LaneView, LetsARankThatIsBehindGoNoFurtherThanItsOldCredit) {
  ViewRig rig(2, 2);
  rig.view = kNext;
  rig.view_commit(0, 1);
  rig.view = {.version = 0, .view_hash = rig.plan.view_hash, .base_chunk = 0};
  for (uint64_t s = 0; s < 3; ++s) rig.contribute_all(s, 1, 2);
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kSlotNotGranted));
  // It resumes in the old view, where nothing is sent again, and follows.
  rig.resume(1, 0);
  EXPECT_EQ(rig.contributions_held(1), 2u);
  rig.view = kNext;
  rig.view_commit(1, 2);
  rig.contribute_all(0);
  EXPECT_THAT(rig.sequences(1), ElementsAre(0));
}

TEST(LaneView, FillsNoPlaceThatTheNetworkStillReads) {
  ViewRig rig(2, 2);
  rig.block(1);
  for (uint64_t s = 0; s < 2; ++s) {
    for (uint32_t r = 0; r < 2; ++r) (void)rig.contribute(r, s, {static_cast<float>(s + 1)});
  }
  rig.settle();
  ASSERT_EQ(rig.results(0).size(), 2u);
  rig.view = kNext;
  rig.view_commit(0, 1);
  (void)rig.send(1, kNext);
  for (uint32_t r = 0; r < 2; ++r) (void)rig.contribute(r, 0, {100});
  rig.settle();
  EXPECT_EQ(rig.results(0).size(), 2u) << "held back";
  EXPECT_FALSE(rig.session->has_folds());
  EXPECT_EQ(rig.lane->do_work(rig.now), 0u) << "and the lane may sleep";
  rig.block(1, false);
  rig.settle();
  std::vector<float> got;
  for (const auto& r : rig.results(1)) got.push_back(LaneRig::floats(r.payload).at(0));
  EXPECT_THAT(got, ElementsAre(2, 4, 200));
  EXPECT_EQ(rig.results(0).size(), 3u);
  // The old results are no credit in the new view.
  for (uint64_t s = 1; s < 4; ++s) (void)rig.contribute(1, s, {1});
  rig.settle();
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kSlotNotGranted));
}

TEST(LaneView, WaitsNoLongerForResultsOfAConnectionThatBroke) {
  ViewRig rig(2, 2);
  rig.block(1);
  for (uint32_t r = 0; r < 2; ++r) (void)rig.contribute(r, 0, {1});
  rig.settle();
  rig.view = kNext;
  rig.view_commit(0, 1);
  rig.contribute_all(0, 0, 1);
  rig.connect_again(1);
  rig.block(1, false);
  rig.settle();
  (void)rig.send(1, wire::Resume{.incarnation = LaneRig::kIncarnation,
                                 .version = kNext.version,
                                 .view_hash = kNext.view_hash,
                                 .base_chunk = kNext.base_chunk,
                                 .results_held = 0});
  rig.contribute_all(0, 1, 2);
  EXPECT_THAT(rig.sequences(1), ElementsAre(0));
  EXPECT_EQ(rig.last(1), 2);
}

TEST(LaneView, MovesByResumeAsByViewCommit) {
  ViewRig rig(2);
  rig.contribute_all(0);
  rig.contribute_all(1, 0, 1);
  rig.view = kNext;
  rig.resume(1, 0);
  EXPECT_EQ(rig.contributions_held(1), 0u);
  EXPECT_THAT(rig.sequences(1), IsEmpty());
  EXPECT_EQ(rig.lane->counters().view_moves.get(), 1u);
  rig.view_commit(0, 1);
  for (uint64_t s = 0; s < 6; ++s) rig.contribute_all(s);
  rig.resume(0, 3);
  EXPECT_THAT(rig.sequences(0), ElementsAre(3, 4, 5)) << "the new view's own";
  EXPECT_EQ(rig.last(0), 12);
}

TEST(LaneView, MovesAgainAtOnceAndPastAView) {
  ViewRig rig(3);
  rig.contribute_all(0, 0, 2);
  rig.view = kNext;
  rig.view_commit(0, 2);
  rig.contribute_all(0, 0, 2);
  rig.view = kAfter;
  rig.view_commit(0, 1);
  rig.contribute_all(0, 0, 1);
  // Rank 2 was in the first view all the time; rank 1 has what it contributed to the second dropped.
  rig.view = kNext;
  rig.contribute_all(1, 1, 2);
  EXPECT_EQ(rig.lane->counters().contributions_dropped.get(), 1u);
  rig.view = kAfter;
  rig.view_commit(1, 3);
  rig.contribute_all(0, 1, 3);
  for (uint32_t r = 0; r < 3; ++r) EXPECT_THAT(rig.sequences(r), ElementsAre(0));
  EXPECT_EQ(rig.lane->counters().view_moves.get(), 2u);
  EXPECT_THAT(rig.events(), IsEmpty());
}

TEST(LaneView, LetsARankFollowIntoAViewThatTheSessionHasPassed) {
  for (const bool by_resume : {false, true}) {
    ViewRig rig(2);
    rig.view = kAfter;
    rig.view_commit(0, 1);
    rig.view = kNext;
    if (by_resume) {
      rig.resume(1, 0);
    } else {
      rig.view_commit(1, 2);
    }
    rig.contribute_all(0, 1, 2);
    EXPECT_EQ(rig.lane->counters().contributions_dropped.get(), 1u);
    rig.view = kAfter;
    rig.view_commit(1, 2);
    rig.contribute_all(0);
    EXPECT_THAT(rig.sequences(1), ElementsAre(0));
    EXPECT_EQ(rig.lane->counters().view_moves.get(), 1u);
    EXPECT_THAT(rig.closed(), IsEmpty());
  }
}

struct BadMove {
  const char* name;
  wire::ViewCommit told;
};
class LaneRefusesView : public ::testing::TestWithParam<BadMove> {};

// Rank 1 is still in the first view; the session, by rank 0, in the third.
TEST_P(LaneRefusesView, ThatIsNotTheSessions) {
  for (const bool by_resume : {false, true}) {
    ViewRig rig(2);
    rig.view = kNext;
    rig.view_commit(0, 1);
    rig.view = kAfter;
    rig.view_commit(0, 1);
    rig.view = GetParam().told;
    if (by_resume) {
      rig.resume(1, 0);
      EXPECT_EQ(rig.ranks[1]->arrived.size(), 0u);
    } else {
      rig.view_commit(1, 2);
    }
    EXPECT_THAT(rig.closed(), ElementsAre(Errc::kBadView));
    rig.view = kAfter;
    rig.resume(1, 0);
    rig.contribute_all(0);
    EXPECT_EQ(rig.last(1), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Words, LaneRefusesView,
                         ::testing::Values(BadMove{"hash", {2, 0x89, 5}}, BadMove{"base", {2, 0x88, 6}},
                                           BadMove{"first", {0, 0x99, 0}}),
                         [](const auto& tested) { return tested.param.name; });

TEST(LaneView, RefusesTheViewThatALinkIsIn) {
  ViewRig rig(2);
  rig.view = kNext;
  rig.view_commit(1, 2);
  rig.view_commit(1, 2);
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kBadView));
}

TEST(LaneView, RefusesFramesOfAnotherView) {
  for (const bool moved : {false, true}) {
    ViewRig rig(2);
    rig.view = kNext;
    rig.view_commit(moved ? 1 : 0, moved ? 2 : 1);
    if (moved) rig.view = {.version = 0, .view_hash = rig.plan.view_hash, .base_chunk = 0};
    rig.contribute_all(0, 1, 2);
    EXPECT_THAT(rig.closed(), ElementsAre(Errc::kBadView)) << moved;
  }
}

TEST(LaneView, GivesTheResultThatARankHasKept) {
  for (const uint32_t ranks : {2u, 8u, 9u, 40u}) {
    for (uint32_t keeper = 0; keeper < ranks; keeper += 1 + ranks / 4) {
      ViewRig rig(ranks);
      rig.view = kNext;
      rig.view_commit(0, ranks);
      // Before and behind the kept one are sums; a second rank's result is as good as the first one's.
      for (uint64_t s = 0; s < 6; ++s) {
        if (s == SurvivingRig::kSlots) rig.settle();
        for (uint32_t r = 0; r < ranks; ++r) {
          if (s == 1 && (r == keeper || r + 1 == keeper)) {
            rig.contribute_kept(r, s, {77.5f});
          } else {
            (void)rig.contribute(r, s, {1});
          }
        }
      }
      rig.settle();
      const auto n = static_cast<float>(ranks);
      for (uint32_t r = 0; r < ranks; ++r) {
        ASSERT_THAT(rig.sequences(r), ElementsAre(0, 1, 2, 3, 4, 5)) << ranks << " " << keeper;
        for (uint64_t s = 0; s < 6; ++s) {
          EXPECT_EQ(LaneRig::floats(rig.results(r)[s].payload), std::vector<float>{s == 1 ? 77.5f : n});
        }
        EXPECT_EQ(rig.results(r)[1].header.flags, wire::kFlagPayloadCrc);
      }
      EXPECT_EQ(rig.lane->counters().kept_results.get(), 1u);
    }
  }
}

TEST(LaneView, CopiesKeptBytesAsTheyAreThoughMoreThanATurnTakes) {
  LaneRig rig(9, 2, 1 * kMiB, true);
  rig.commit_all();
  rig.view = kNext;
  for (uint32_t r = 0; r < 9; ++r) (void)rig.send(r, kNext);
  rig.settle();
  // bf16: signalling NaNs, subnormals and all: a sum would not leave them as they are.
  std::vector<std::byte> kept(kMiB);
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<std::byte>((i * 2654435761u) >> 24);
  const std::vector<std::byte> other(kept.size());
  for (uint32_t r = 0; r < 9; ++r) {
    wire::FrameHeader h = rig.header(0, kept.size() / 2, wire::DType::kBf16);
    if (r == 8) h.flags |= wire::kFlagKept;
    (void)rig.ranks[r]->send(h, r == 8 ? kept : other);
    if (r == 7) (void)rig.lane->do_work(rig.now);
  }
  rig.settle();
  for (uint32_t r = 0; r < 9; ++r) {
    ASSERT_EQ(rig.results(r).size(), 1u);  // the receiving transport checked the CRC
    EXPECT_EQ(rig.results(r)[0].payload, kept);
  }
}

TEST(LaneView, KeptResultsMustAgreeWithTheOthersInAllElse) {
  ViewRig rig(2);
  rig.view = kNext;
  rig.view_commit(0, 2);
  rig.contribute_all(0, 0, 1);
  rig.contribute_kept(1, 0, {1, 2});
  const auto failed = rig.failures();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].code, Errc::kMismatch);
}

TEST(LaneView, NobodyHasKeptResultsInTheFirstView) {
  ViewRig rig(2);
  rig.contribute_kept(1, 0, {1});
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kBadField));
}

TEST(LaneView, SessionsThatDoNotSurviveKnowNothingOfIt) {
  const auto refused = [](auto frame) {
    LaneRig rig(2);
    rig.commit_all();
    frame(rig);
    rig.settle();
    const auto events = rig.events();
    EXPECT_EQ(events.size(), 1u);
    EXPECT_FALSE(rig.ranks[0]->closed.has_value());
    return events.at(0).code;
  };
  EXPECT_EQ(refused([](LaneRig& rig) { (void)rig.send(1, kNext); }), Errc::kUnexpectedMessage);
  EXPECT_EQ(
      refused([](LaneRig& rig) {
        (void)rig.send(
            1, wire::Resume{
                   .incarnation = 77, .version = 0, .view_hash = 0x1234, .base_chunk = 0, .results_held = 0});
      }),
      Errc::kUnexpectedMessage);
  EXPECT_EQ(refused([](LaneRig& rig) {
              wire::FrameHeader h = rig.header(0, 1);
              h.flags |= wire::kFlagKept;
              (void)rig.ranks[1]->send(h, LaneRig::bytes({1}));
            }),
            Errc::kBadField);
  LaneRig uncommitted(1);
  (void)uncommitted.send(
      0,
      wire::Resume{.incarnation = 77, .version = 0, .view_hash = 0x1234, .base_chunk = 0, .results_held = 0});
  uncommitted.settle();
  EXPECT_EQ(uncommitted.events().at(0).code, Errc::kUnexpectedMessage);
}

TEST(LaneView, ARankThatHasLeftContributesOnceMoreWhatItHas) {
  ViewRig rig(3);
  rig.contribute_all(0);
  rig.contribute_all(1, 0, 1);
  (void)rig.events();
  rig.session->rank_left(2);
  rig.settle();
  ASSERT_THAT(rig.failures().size(), 1u) << "in one view nobody may go on without it";

  ViewRig moved(3);
  moved.contribute_all(0);
  moved.session->rank_left(2);
  moved.settle();
  moved.view = kNext;
  moved.view_commit(0, 2);
  moved.contribute_all(0, 0, 2);
  moved.contribute_all(1, 0, 2);
  EXPECT_THAT(moved.events(), IsEmpty()) << "it may still follow";
  moved.view_commit(2, 3);
  moved.contribute_kept(2, 0, {3});
  EXPECT_THAT(moved.sequences(0), ElementsAre(0, 0));
  EXPECT_EQ(moved.last(1), 3);
  // And goes; now those who went on have lost it.
  moved.break_connection(2);
  moved.settle();
  const auto failed = moved.failures();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].code, Errc::kRankLeft);
  EXPECT_EQ(failed[0].rank, 2u);
}

// Rank 9 of 10 has left, and is gone when the others move on.
struct GoneRig : ViewRig {
  GoneRig() : ViewRig(10) {
    contribute_all(0);
    session->rank_left(9);
    settle();
    break_connection(9);
    (void)events();
    view = kNext;
    view_commit(0, 9);
  }
};

TEST(LaneView, ARankThatLeftAndIsGoneIsNotNeededWhereAnotherHasTheResult) {
  GoneRig rig;
  for (uint64_t s = 0; s < 6; ++s) {
    rig.contribute_all(s, 0, 3);
    rig.contribute_kept(3, s, {55});
    rig.contribute_all(s, 4, 9);
    ASSERT_EQ(rig.results(0).size(), s + 2);
    EXPECT_EQ(rig.last(0), 55);
  }
  EXPECT_THAT(rig.events(), IsEmpty());
  // It comes too late to take part, whichever way.
  rig.view = {.version = 0, .view_hash = rig.plan.view_hash, .base_chunk = 0};
  rig.resume(9, 1);
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kBadSequence));
  rig.view = kNext;
  rig.resume(9, 0);
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kBadSequence));
}

TEST(LaneView, AKeptResultIsSentAgainLikeAnyOther) {
  ViewRig rig(2);
  rig.view = kNext;
  rig.view_commit(0, 2);
  rig.contribute_all(0, 0, 1);
  rig.contribute_kept(1, 0, {77.5f});
  rig.resume(0, 0);
  EXPECT_EQ(rig.last(0), 77.5f);
}

TEST(LaneView, EndsWhereOnlyARankThatLeftAndIsGoneHadTheResult) {
  GoneRig rig;
  rig.contribute_all(0, 0, 9);
  const auto failed = rig.failures();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].code, Errc::kRankLeft);
  EXPECT_EQ(failed[0].rank, 9u);
  EXPECT_THAT(failed[0].text.data(), HasSubstr("rank 9 left"));
}

TEST(LaneView, TellsWhenTheRankThatIsWaitedForGoesForGood) {
  ViewRig rig(10);
  rig.contribute_all(0);
  rig.session->rank_left(9);
  rig.settle();
  (void)rig.events();
  rig.view = kNext;
  rig.view_commit(0, 9);
  rig.contribute_kept(0, 0, {5});
  rig.contribute_all(0, 1, 9);
  rig.contribute_all(1, 0, 8);
  EXPECT_EQ(rig.results(0).size(), 1u) << "rank 9 is there, and may have more to give";
  rig.break_connection(9);
  EXPECT_EQ(rig.results(0).size(), 2u);
  EXPECT_EQ(rig.last(0), 5);
  EXPECT_THAT(rig.failures(), IsEmpty());
  rig.contribute_all(1, 8, 9);
  EXPECT_EQ(rig.failures().size(), 1u) << "of the second chunk nobody has the result";
}

}  // namespace
}  // namespace sluice::test
