// Lane with a fault-tolerant session whose connections break: resumes, refused resumes, excluded ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fault_tolerant_test_bed.h"

namespace sluice::test {
namespace {

using reducer::LaneCommand;
using reducer::LaneEvent;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
constexpr uint32_t kSlots = FaultTolerantTestBed::kSlots;

TEST(LaneResume, ContinuesWhenNothingWasLost) {
  FaultTolerantTestBed test_bed(2);
  test_bed.contribute_all(0);
  test_bed.break_connection(1);
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kReset));
  EXPECT_EQ(test_bed.session->down_since(1), test_bed.now);
  test_bed.resume(1, 1);
  EXPECT_EQ(test_bed.session->down_since(1), 0);
  EXPECT_EQ(test_bed.contributions_held(1), 1u);
  EXPECT_THAT(test_bed.sequences(1), IsEmpty());
  for (uint64_t s = 1; s < 10; ++s) test_bed.contribute_all(s);
  EXPECT_EQ(test_bed.sequences(0).size(), 10u);
  EXPECT_EQ(test_bed.sequences(1).size(), 9u);
  EXPECT_EQ(LaneTestBed::floats(test_bed.results(1).back().payload), std::vector<float>{20});
  EXPECT_EQ(test_bed.lane->counters().resumes.get(), 1u);
  EXPECT_EQ(test_bed.lane->counters().results_resent.get(), 0u);
  test_bed.advance(kSecond);
  test_bed.settle();
  EXPECT_EQ(test_bed.lane->counters().frames_in.get(), 2u + 1 + 20) << "both connections count";
  EXPECT_THAT(test_bed.events(), IsEmpty());
}

TEST(LaneResume, ResendsResultsMadeWhileTheRankWasDisconnected) {
  FaultTolerantTestBed test_bed(3);
  for (uint64_t s = 0; s < 6; ++s) test_bed.contribute_all(s);
  // Rank 2 contributes a window and disconnects; then the results are made.
  for (uint64_t s = 6; s < 6 + kSlots; ++s) test_bed.contribute_all(s, 2, 3);
  test_bed.break_connection(2);
  for (uint64_t s = 6; s < 6 + kSlots; ++s) test_bed.contribute_all(s, 0, 2);
  EXPECT_EQ(test_bed.sequences(0).size(), 6 + kSlots);
  test_bed.resume(2, 6);
  EXPECT_EQ(test_bed.contributions_held(2), 6 + kSlots);
  EXPECT_THAT(test_bed.sequences(2), ElementsAre(6, 7, 8, 9));
  for (size_t i = 0; i < kSlots; ++i) {
    const auto got = test_bed.results(2)[i];
    const auto first = test_bed.results(0)[6 + i];
    EXPECT_EQ(got.header.flags, first.header.flags | wire::kFlagResent);
    EXPECT_EQ(got.extensions, first.extensions);
    EXPECT_EQ(LaneTestBed::floats(got.payload), std::vector<float>{3 * static_cast<float>(7 + i)});
  }
  EXPECT_EQ(test_bed.lane->counters().results_resent.get(), kSlots);
  for (uint64_t s = 10; s < 20; ++s) test_bed.contribute_all(s);
  EXPECT_EQ(test_bed.sequences(2).size(), kSlots + 10);
}

TEST(LaneResume, ResendsResultsLostWithTheConnection) {
  FaultTolerantTestBed test_bed(2);
  test_bed.contribute_all(0);
  for (uint32_t r = 0; r < 2; ++r) {
    for (uint64_t sequence = 1; sequence < 3; ++sequence) (void)test_bed.contribute(r, sequence, {1});
  }
  (void)test_bed.lane->do_work(test_bed.now);  // puts the results, which rank 1 does not read
  test_bed.reconnect(1);
  (void)test_bed.lane->do_work(test_bed.now);
  test_bed.send_resume(1, 1);
  test_bed.settle();
  EXPECT_THAT(test_bed.sequences(1), ElementsAre(1, 2));
  EXPECT_THAT(test_bed.closed(), IsEmpty()) << "the connection was replaced";
}

TEST(LaneResume, AcceptsARepeatedContributionAfterACorruptOne) {
  FaultTolerantTestBed test_bed(2);
  // The corrupt payload fills the slot.
  wire::FrameHeader h = test_bed.header(0, 2);
  h.flags |= wire::kFlagPayloadCrc;
  h.payload_crc = 1;
  h.length = 8;
  const auto wrong = LaneTestBed::bytes({100, 100});
  (void)test_bed.ranks[1]->endpoint->put(h, {}, wrong, 0);
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kBadPayloadCrc));
  test_bed.resume(1, 0);
  EXPECT_EQ(test_bed.contributions_held(1), 0u);
  wire::FrameHeader again = test_bed.header(0, 2);
  again.flags |= wire::kFlagResent;
  (void)test_bed.ranks[1]->send(again, LaneTestBed::bytes({1, 2}));
  (void)test_bed.contribute(0, 0, {1, 2});
  test_bed.settle();
  ASSERT_EQ(test_bed.results(0).size(), 1u);
  EXPECT_EQ(LaneTestBed::floats(test_bed.results(0)[0].payload), (std::vector<float>{2, 4}));
}

TEST(LaneResume, SumsNoContributionTwice) {
  FaultTolerantTestBed test_bed(2);
  (void)test_bed.contribute(1, 0, {5});
  test_bed.settle();
  test_bed.break_connection(1);
  test_bed.resume(1, 0);
  EXPECT_EQ(test_bed.contributions_held(1), 1u);
  (void)test_bed.contribute(1, 0, {5});  // although RESUME_ACK reports it
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kReset, Errc::kBadSequence));
  test_bed.resume(1, 0);
  (void)test_bed.contribute(0, 0, {1});
  test_bed.settle();
  EXPECT_EQ(LaneTestBed::floats(test_bed.results(1).at(0).payload), std::vector<float>{6});
}

TEST(LaneResume, ReplacesAConnectionThatSeemsAlive) {
  FaultTolerantTestBed test_bed(2);
  test_bed.contribute_all(0);
  test_bed.reconnect(1);
  test_bed.reconnect(1);  // immediately: the second connection is never served
  test_bed.settle();
  EXPECT_EQ(test_bed.retired[0]->closed, Errc::kReset);
  EXPECT_EQ(test_bed.lane->context().endpoint_count(), 2u);
  EXPECT_EQ(test_bed.session->down_since(1), 0);
  test_bed.send_resume(1, 1);
  test_bed.contribute_all(1);
  EXPECT_THAT(test_bed.sequences(1), ElementsAre(1));
  EXPECT_THAT(test_bed.closed(), IsEmpty());
  EXPECT_EQ(test_bed.lane->counters().closed[static_cast<size_t>(Errc::kReset)].get(), 1u);
}

TEST(LaneResume, ReportsASocketThatCannotBeAdopted) {
  FaultTolerantTestBed test_bed(2);
  test_bed.refuse_to_adopt = true;
  test_bed.reconnect(1);
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kSystem));
  EXPECT_EQ(test_bed.session->down_since(1), test_bed.now);
  test_bed.refuse_to_adopt = false;
  test_bed.resume(1, 0);
  EXPECT_EQ(test_bed.contributions_held(1), 0u);
}

TEST(LaneResume, CloseRankDropsAPendingConnection) {
  FaultTolerantTestBed test_bed(2);
  test_bed.reconnect(1);
  ASSERT_TRUE(test_bed.lane->command(
      {.kind = LaneCommand::Kind::kCloseRank, .session = test_bed.session.get(), .rank = 1}));
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kReset));
  EXPECT_EQ(test_bed.lane->context().endpoint_count(), 1u);
  EXPECT_NE(test_bed.session->down_since(1), 0);
}

TEST(LaneResume, EndDropsAPendingConnection) {
  FaultTolerantTestBed test_bed(1);
  test_bed.block(0);
  test_bed.reconnect(0);
  ASSERT_TRUE(test_bed.lane->command(
      {.kind = LaneCommand::Kind::kEnd, .session = test_bed.session.get(), .rank = 0}));
  test_bed.settle();
  EXPECT_EQ(test_bed.lane->session_count(), 0u);
  EXPECT_EQ(test_bed.events().back().kind, LaneEvent::Kind::kReleased);
}

TEST(LaneResume, AcceptsResumeAsTheFirstFrameOfARank) {
  FaultTolerantTestBed test_bed(2);
  LaneTestBed fresh(2, kSlots, 4096, true);
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
  wire::Resume message;
};

class LaneRefusedResumeTest : public ::testing::TestWithParam<Refusal> {};

// Rank 1 has contributed 0..2, rank 0 only 0: one result.
TEST_P(LaneRefusedResumeTest, AcceptsTheNextAttempt) {
  FaultTolerantTestBed test_bed(2, 2);
  test_bed.contribute_all(0);
  test_bed.contribute_all(1, 1, 2);
  test_bed.contribute_all(2, 1, 2);
  test_bed.break_connection(1);
  test_bed.reconnect(1);
  test_bed.settle();
  (void)test_bed.send(1, GetParam().message);
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kReset, GetParam().reason));
  test_bed.resume(1, 1);
  EXPECT_EQ(test_bed.contributions_held(1), 3u);
  test_bed.contribute_all(1, 0, 1);
  EXPECT_THAT(test_bed.sequences(1), ElementsAre(1));
}

constexpr uint64_t kIncarnation = LaneTestBed::kIncarnation;
INSTANTIATE_TEST_SUITE_P(
    Messages, LaneRefusedResumeTest,
    ::testing::Values(Refusal{"incarnation", Errc::kBadField, {kIncarnation + 1, 0, 0x1234, 0, 1}},
                      Refusal{"no_incarnation", Errc::kBadField, {0, 0, 0x1234, 0, 1}},
                      Refusal{"hash", Errc::kBadView, {kIncarnation, 0, 0x1235, 0, 1}},
                      Refusal{"base", Errc::kBadView, {kIncarnation, 0, 0x1234, 1, 1}},
                      Refusal{"unmade_results", Errc::kBadSequence, {kIncarnation, 0, 0x1234, 0, 2}},
                      Refusal{"more_than_contributed", Errc::kBadSequence, {kIncarnation, 0, 0x1234, 0, 4}},
                      Refusal{"absurd", Errc::kBadSequence, {kIncarnation, 0, 0x1234, 0, ~uint64_t{0}}},
                      Refusal{"without_credit", Errc::kBadSequence, {kIncarnation, 0, 0x1234, 0, 0}},
                      Refusal{"new_view_with_results", Errc::kBadSequence, {kIncarnation, 1, 0x99, 5, 1}}),
    [](const auto& tested) { return tested.param.name; });

TEST(LaneResume, RefusesAnyOtherFirstFrame) {
  for (unsigned first = 0; first < 3; ++first) {
    FaultTolerantTestBed test_bed(2);
    test_bed.reconnect(1);
    test_bed.settle();
    if (first == 0) test_bed.commit(1);
    if (first == 1) (void)test_bed.contribute(1, 0, {1});
    if (first == 2) (void)test_bed.send(1, wire::ViewCommit{.version = 1, .view_hash = 1, .base_chunk = 0});
    test_bed.settle();
    EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kUnexpectedMessage)) << first;
  }
}

TEST(LaneResume, DoesNotWaitForeverForTheFirstFrame) {
  FaultTolerantTestBed test_bed(2);
  test_bed.reconnect(1);
  test_bed.settle();
  test_bed.advance(9 * kSecond);
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), IsEmpty());
  test_bed.advance(2 * kSecond);
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kTimeout));
  test_bed.resume(1, 0);
  test_bed.contribute_all(0);
  test_bed.advance(3600 * kSecond);  // a resumed rank has no deadline
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), IsEmpty());
  test_bed.contribute_all(1);
  EXPECT_THAT(test_bed.sequences(0), ElementsAre(0, 1));
}

TEST(LaneResume, RefusesASecondResume) {
  FaultTolerantTestBed test_bed(2);
  test_bed.resume(1, 0);
  test_bed.send_resume(1, 0);
  test_bed.settle();
  EXPECT_THAT(test_bed.closed(), ElementsAre(Errc::kUnexpectedMessage));
}

TEST(LaneResume, ReportsARankWhoseConnectionsKeepBreakingByBadFrames) {
  FaultTolerantTestBed test_bed(2);
  const auto send_bad_frame = [&test_bed](uint64_t results) {
    test_bed.resume(1, results);
    wire::FrameHeader h = test_bed.header(results, 1);
    h.session = 8;
    (void)test_bed.ranks[1]->send(h, LaneTestBed::bytes({1}));
    test_bed.settle();
  };
  const auto failures = [&test_bed] {
    auto all = test_bed.events();
    std::erase_if(all, [](const LaneEvent& e) { return e.kind == LaneEvent::Kind::kClosed; });
    return all;
  };
  for (int i = 0; i < 15; ++i) send_bad_frame(0);
  EXPECT_THAT(failures(), IsEmpty());
  // kGoodFrames good frames reset the count.
  test_bed.resume(1, 0);
  for (uint64_t s = 0; s < 1024; ++s) test_bed.contribute_all(s);
  for (int i = 0; i < 15; ++i) send_bad_frame(1024);
  EXPECT_THAT(failures(), IsEmpty());
  // Closes without a bad frame do not count.
  for (int i = 0; i < 20; ++i) {
    test_bed.resume(1, 1024);
    test_bed.break_connection(1);
  }
  EXPECT_THAT(failures(), IsEmpty());
  send_bad_frame(1024);
  const auto lost = failures();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].kind, LaneEvent::Kind::kTooManyBadFrames);
  EXPECT_EQ(lost[0].code, Errc::kBadSession);
  EXPECT_EQ(lost[0].rank, 1u);
}

}  // namespace
}  // namespace sluice::test
