// A surviving session on a lane whose connections break: what is resumed, what is refused, who is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/surviving_rig.h"

namespace sluice::test {
namespace {

using reducer::LaneCommand;
using reducer::LaneEvent;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
constexpr uint32_t kSlots = SurvivingRig::kSlots;

TEST(LaneResume, GoesOnWhereNothingWasLost) {
  SurvivingRig rig(2);
  rig.contribute_all(0);
  rig.break_connection(1);
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kReset));
  EXPECT_EQ(rig.session->down_since(1), rig.now);
  rig.resume(1, 1);
  EXPECT_EQ(rig.session->down_since(1), 0);
  EXPECT_EQ(rig.contributions_held(1), 1u);
  EXPECT_THAT(rig.sequences(1), IsEmpty());
  for (uint64_t s = 1; s < 10; ++s) rig.contribute_all(s);
  EXPECT_EQ(rig.sequences(0).size(), 10u);
  EXPECT_EQ(rig.sequences(1).size(), 9u);
  EXPECT_EQ(LaneRig::floats(rig.results(1).back().payload), std::vector<float>{20});
  EXPECT_EQ(rig.lane->counters().resumes.get(), 1u);
  EXPECT_EQ(rig.lane->counters().results_resent.get(), 0u);
  rig.advance(kSecond);
  rig.settle();
  EXPECT_EQ(rig.lane->counters().frames_in.get(), 2u + 1 + 20) << "of both connections";
  EXPECT_THAT(rig.events(), IsEmpty());
}

TEST(LaneResume, SendsAgainTheResultsThatTheRankLacks) {
  SurvivingRig rig(3);
  for (uint64_t s = 0; s < 6; ++s) rig.contribute_all(s);
  // Rank 2 contributes a window, breaks, and the results are made without it.
  for (uint64_t s = 6; s < 6 + kSlots; ++s) rig.contribute_all(s, 2, 3);
  rig.break_connection(2);
  for (uint64_t s = 6; s < 6 + kSlots; ++s) rig.contribute_all(s, 0, 2);
  EXPECT_EQ(rig.sequences(0).size(), 6 + kSlots);
  rig.resume(2, 6);
  EXPECT_EQ(rig.contributions_held(2), 6 + kSlots);
  EXPECT_THAT(rig.sequences(2), ElementsAre(6, 7, 8, 9));
  for (size_t i = 0; i < kSlots; ++i) {
    const auto got = rig.results(2)[i];
    const auto first = rig.results(0)[6 + i];
    EXPECT_EQ(got.header.flags, first.header.flags | wire::kFlagResent);
    EXPECT_EQ(got.extensions, first.extensions);
    EXPECT_EQ(LaneRig::floats(got.payload), std::vector<float>{3 * static_cast<float>(7 + i)});
  }
  EXPECT_EQ(rig.lane->counters().results_resent.get(), kSlots);
  for (uint64_t s = 10; s < 20; ++s) rig.contribute_all(s);
  EXPECT_EQ(rig.sequences(2).size(), kSlots + 10);
}

TEST(LaneResume, SendsAgainResultsThatWerePutAndLost) {
  SurvivingRig rig(2);
  rig.contribute_all(0);
  for (uint32_t r = 0; r < 2; ++r) {
    for (uint64_t sequence = 1; sequence < 3; ++sequence) (void)rig.contribute(r, sequence, {1});
  }
  (void)rig.lane->do_work(rig.now);  // the results are put; rank 1 takes nothing in any more
  rig.connect_again(1);
  (void)rig.lane->do_work(rig.now);
  (void)rig.send(1, wire::Resume{.incarnation = LaneRig::kIncarnation,
                                 .version = 0,
                                 .view_hash = rig.plan.view_hash,
                                 .base_chunk = 0,
                                 .results_held = 1});
  rig.settle();
  EXPECT_THAT(rig.sequences(1), ElementsAre(1, 2));
  EXPECT_THAT(rig.closed(), IsEmpty()) << "replaced";
}

TEST(LaneResume, TakesAgainAContributionThatCameInPart) {
  SurvivingRig rig(2);
  // All of it is in its place, but it was wrong.
  wire::FrameHeader h = rig.header(0, 2);
  h.flags |= wire::kFlagPayloadCrc;
  h.payload_crc = 1;
  h.length = 8;
  const auto wrong = LaneRig::bytes({100, 100});
  (void)rig.ranks[1]->endpoint->put(h, {}, wrong, 0);
  rig.settle();
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kBadPayloadCrc));
  rig.resume(1, 0);
  EXPECT_EQ(rig.contributions_held(1), 0u);
  wire::FrameHeader again = rig.header(0, 2);
  again.flags |= wire::kFlagResent;
  (void)rig.ranks[1]->send(again, LaneRig::bytes({1, 2}));
  (void)rig.contribute(0, 0, {1, 2});
  rig.settle();
  ASSERT_EQ(rig.results(0).size(), 1u);
  EXPECT_EQ(LaneRig::floats(rig.results(0)[0].payload), (std::vector<float>{2, 4}));
}

TEST(LaneResume, NeverSumsAContributionTwice) {
  SurvivingRig rig(2);
  (void)rig.contribute(1, 0, {5});
  rig.settle();
  rig.break_connection(1);
  rig.resume(1, 0);
  EXPECT_EQ(rig.contributions_held(1), 1u);
  (void)rig.contribute(1, 0, {5});  // though it was told
  rig.settle();
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kReset, Errc::kBadSequence));
  rig.resume(1, 0);
  (void)rig.contribute(0, 0, {1});
  rig.settle();
  EXPECT_EQ(LaneRig::floats(rig.results(1).at(0).payload), std::vector<float>{6});
}

TEST(LaneResume, ReplacesAConnectionThatItTookForAlive) {
  SurvivingRig rig(2);
  rig.contribute_all(0);
  rig.connect_again(1);
  rig.connect_again(1);  // at once: the one between is never served
  rig.settle();
  EXPECT_EQ(rig.retired[0]->closed, Errc::kReset);
  EXPECT_EQ(rig.lane->context().endpoint_count(), 2u);
  EXPECT_EQ(rig.session->down_since(1), 0);
  (void)rig.send(1, wire::Resume{.incarnation = LaneRig::kIncarnation,
                                 .version = 0,
                                 .view_hash = rig.plan.view_hash,
                                 .base_chunk = 0,
                                 .results_held = 1});
  rig.contribute_all(1);
  EXPECT_THAT(rig.sequences(1), ElementsAre(1));
  EXPECT_THAT(rig.closed(), IsEmpty());
  EXPECT_EQ(rig.lane->counters().closed[static_cast<size_t>(Errc::kReset)].get(), 1u);
}

TEST(LaneResume, SaysThatAConnectionCouldNotBeTakenOver) {
  SurvivingRig rig(2);
  rig.refuse_to_adopt = true;
  rig.connect_again(1);
  rig.settle();
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kSystem));
  EXPECT_EQ(rig.session->down_since(1), rig.now);
  rig.refuse_to_adopt = false;
  rig.resume(1, 0);
  EXPECT_EQ(rig.contributions_held(1), 0u);
}

TEST(LaneResume, BreaksAConnectionThatWaitsToo) {
  SurvivingRig rig(2);
  rig.connect_again(1);
  ASSERT_TRUE(
      rig.lane->command({.kind = LaneCommand::Kind::kCloseRank, .session = rig.session.get(), .rank = 1}));
  rig.settle();
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kReset));
  EXPECT_EQ(rig.lane->context().endpoint_count(), 1u);
  EXPECT_NE(rig.session->down_since(1), 0);
}

TEST(LaneResume, EndsWithAConnectionThatWaits) {
  SurvivingRig rig(1);
  rig.block(0);
  rig.connect_again(0);
  ASSERT_TRUE(rig.lane->command({.kind = LaneCommand::Kind::kEnd, .session = rig.session.get(), .rank = 0}));
  rig.settle();
  EXPECT_EQ(rig.lane->session_count(), 0u);
  EXPECT_EQ(rig.events().back().kind, LaneEvent::Kind::kReleased);
}

TEST(LaneResume, MayBeTheFirstFrameOfAll) {
  SurvivingRig rig(2);
  LaneRig fresh(2, kSlots, 4096, true);
  fresh.commit(0);
  fresh.settle();
  fresh.resume(1, 0);
  ASSERT_EQ(fresh.ranks[1]->arrived.size(), 1u);
  for (uint32_t r = 0; r < 2; ++r) (void)fresh.contribute(r, 0, {1});
  fresh.settle();
  EXPECT_EQ(fresh.results(1).size(), 1u);
}

struct Refusal {
  const char* name;
  Errc reason;
  wire::Resume told;
};

class LaneRefusesResume : public ::testing::TestWithParam<Refusal> {};

// Rank 1 has contributed 0..2, rank 0 only 0: one result.
TEST_P(LaneRefusesResume, AndTakesTheNextTry) {
  SurvivingRig rig(2, 2);
  rig.contribute_all(0);
  rig.contribute_all(1, 1, 2);
  rig.contribute_all(2, 1, 2);
  rig.break_connection(1);
  rig.connect_again(1);
  rig.settle();
  (void)rig.send(1, GetParam().told);
  rig.settle();
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kReset, GetParam().reason));
  rig.resume(1, 1);
  EXPECT_EQ(rig.contributions_held(1), 3u);
  rig.contribute_all(1, 0, 1);
  EXPECT_THAT(rig.sequences(1), ElementsAre(1));
}

constexpr uint64_t kIncarnation = LaneRig::kIncarnation;
INSTANTIATE_TEST_SUITE_P(
    Words, LaneRefusesResume,
    ::testing::Values(Refusal{"incarnation", Errc::kBadField, {kIncarnation + 1, 0, 0x1234, 0, 1}},
                      Refusal{"no_incarnation", Errc::kBadField, {0, 0, 0x1234, 0, 1}},
                      Refusal{"hash", Errc::kBadView, {kIncarnation, 0, 0x1235, 0, 1}},
                      Refusal{"base", Errc::kBadView, {kIncarnation, 0, 0x1234, 1, 1}},
                      Refusal{"results_not_made", Errc::kBadSequence, {kIncarnation, 0, 0x1234, 0, 2}},
                      Refusal{"more_than_contributed", Errc::kBadSequence, {kIncarnation, 0, 0x1234, 0, 4}},
                      Refusal{"absurd", Errc::kBadSequence, {kIncarnation, 0, 0x1234, 0, ~uint64_t{0}}},
                      Refusal{"without_the_credit", Errc::kBadSequence, {kIncarnation, 0, 0x1234, 0, 0}},
                      Refusal{"new_view_with_results", Errc::kBadSequence, {kIncarnation, 1, 0x99, 5, 1}}),
    [](const auto& tested) { return tested.param.name; });

TEST(LaneResume, RefusesAnyOtherFirstFrame) {
  for (unsigned first = 0; first < 3; ++first) {
    SurvivingRig rig(2);
    rig.connect_again(1);
    rig.settle();
    if (first == 0) rig.commit(1);
    if (first == 1) (void)rig.contribute(1, 0, {1});
    if (first == 2) (void)rig.send(1, wire::ViewCommit{.version = 1, .view_hash = 1, .base_chunk = 0});
    rig.settle();
    EXPECT_THAT(rig.closed(), ElementsAre(Errc::kUnexpectedMessage)) << first;
  }
}

TEST(LaneResume, DoesNotWaitForeverForTheFirstFrame) {
  SurvivingRig rig(2);
  rig.connect_again(1);
  rig.settle();
  rig.advance(9 * kSecond);
  rig.settle();
  EXPECT_THAT(rig.closed(), IsEmpty());
  rig.advance(2 * kSecond);
  rig.settle();
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kTimeout));
  rig.resume(1, 0);
  rig.contribute_all(0);
  rig.advance(3600 * kSecond);  // one that goes on may be late for any time
  rig.settle();
  EXPECT_THAT(rig.closed(), IsEmpty());
  rig.contribute_all(1);
  EXPECT_THAT(rig.sequences(0), ElementsAre(0, 1));
}

TEST(LaneResume, RefusesResumeTwice) {
  SurvivingRig rig(2);
  rig.resume(1, 0);
  (void)rig.send(1, wire::Resume{.incarnation = kIncarnation,
                                 .version = 0,
                                 .view_hash = rig.plan.view_hash,
                                 .base_chunk = 0,
                                 .results_held = 0});
  rig.settle();
  EXPECT_THAT(rig.closed(), ElementsAre(Errc::kUnexpectedMessage));
}

TEST(LaneResume, TellsOfARankWhoseConnectionsBreakOverAndOverByBadFrames) {
  SurvivingRig rig(2);
  const auto send_bad_frame = [&rig](uint64_t results) {
    rig.resume(1, results);
    wire::FrameHeader h = rig.header(results, 1);
    h.session = 8;
    (void)rig.ranks[1]->send(h, LaneRig::bytes({1}));
    rig.settle();
  };
  const auto failures = [&rig] {
    auto all = rig.events();
    std::erase_if(all, [](const LaneEvent& e) { return e.kind == LaneEvent::Kind::kClosed; });
    return all;
  };
  for (int i = 0; i < 15; ++i) send_bad_frame(0);
  EXPECT_THAT(failures(), IsEmpty());
  // A thousand good frames, and the fifteen are forgiven.
  rig.resume(1, 0);
  for (uint64_t s = 0; s < 1024; ++s) rig.contribute_all(s);
  for (int i = 0; i < 15; ++i) send_bad_frame(1024);
  EXPECT_THAT(failures(), IsEmpty());
  // Connections that end without a bad frame do not count.
  for (int i = 0; i < 20; ++i) {
    rig.resume(1, 1024);
    rig.break_connection(1);
  }
  EXPECT_THAT(failures(), IsEmpty());
  send_bad_frame(1024);
  const auto lost = failures();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].kind, LaneEvent::Kind::kUnfit);
  EXPECT_EQ(lost[0].code, Errc::kBadSession);
  EXPECT_EQ(lost[0].rank, 1u);
}

}  // namespace
}  // namespace sluice::test
