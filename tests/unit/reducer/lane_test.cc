#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/lane_rig.h"

namespace sluice::test {
namespace {

using reducer::LaneEvent;
using ::testing::HasSubstr;

// ((r0+r1)+r2)+... in groups of eight, then the groups: PROTOCOL.md section 7, in its own words.
float sum_in_order(const std::vector<float>& by_rank) {
  std::vector<float> groups;
  for (size_t i = 0; i < by_rank.size(); i += 8) {
    float g = by_rank[i];
    for (size_t r = i + 1; r < std::min(i + 8, by_rank.size()); ++r) g += by_rank[r];
    groups.push_back(g);
  }
  float total = groups[0];
  for (size_t g = 1; g < groups.size(); ++g) total += groups[g];
  return total;
}

// Values whose f32 sum depends on the order of adding.
float awkward(uint32_t rank) {
  return (rank % 2 == 0 ? 1.0f : -1.0f) * (1.0e7f / static_cast<float>(rank + 1)) + 0.1f;
}

TEST(Lane, SumsInRankOrderWhateverTheOrderOfArrival) {
  for (uint32_t n : {1u, 2u, 3u, 8u, 9u, 17u, 40u}) {
    std::vector<float> by_rank;
    std::vector<uint32_t> order;
    for (uint32_t r = 0; r < n; ++r) by_rank.push_back(awkward(r)), order.push_back(r);
    const float expected = sum_in_order(by_rank);
    LaneRig rig(n);
    rig.commit_all();
    for (uint64_t sequence = 0; sequence < 12; ++sequence) {
      std::rotate(order.begin(), order.begin() + static_cast<long>(sequence % n), order.end());
      if (sequence % 3 == 0) std::ranges::reverse(order);
      for (uint32_t r : order) {
        ASSERT_TRUE(rig.contribute(r, sequence, std::vector<float>(100, by_rank[r])).ok());
        rig.settle();
      }
      for (const auto& rank : rig.ranks) {
        ASSERT_EQ(rank->arrived.size(), sequence + 1) << "n " << n;
        const auto& result = rank->arrived.back();
        EXPECT_EQ(result.header.type, wire::FrameType::kResult);
        EXPECT_EQ(result.header.sequence, sequence);
        EXPECT_EQ(LaneRig::floats(result.payload), std::vector<float>(100, expected)) << "n " << n;
        EXPECT_EQ(wire::find_result_info(result.extensions)->last_rank, order.back());
      }
    }
  }
}

TEST(Lane, ForeseesContributionsLikeTheLastOneInGrantedSlots) {
  LaneRig rig(2, 4);
  rig.commit_all();
  transport::Endpoint& ep = *rig.ranks[0]->endpoint;  // not looked at
  const auto next = [&](unsigned ahead) { return rig.session->link(Rank{0}).forecast(ep, ahead); };
  EXPECT_EQ(next(0).length, 0u) << "nothing to go by";
  const std::vector<float> values(100);
  ASSERT_TRUE(rig.contribute(0, 0, values).ok());
  rig.settle();
  EXPECT_EQ(next(0).length, 400u);
  EXPECT_NE(next(0).payload, next(1).payload);
  EXPECT_EQ(next(2).length, 400u);
  // The slot of contribution 4 is that of contribution 0, which rank 1 has still to be added to.
  EXPECT_EQ(next(3).length, 0u);
  ASSERT_TRUE(rig.contribute(1, 0, values).ok());
  rig.settle();
  EXPECT_EQ(next(3).length, 400u);
  EXPECT_EQ(next(4).length, 0u);
}

TEST(Lane, TellsEveryRankOnceOfTheLossesThatOneTells) {
  LaneRig rig(3);
  rig.commit_all();
  const std::vector<float> values(100, 1.0f);
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    for (uint32_t r = 0; r < 3; ++r) {
      wire::FrameHeader h = rig.header(sequence, values.size());
      if (sequence == 0 && r == 1) h.flags |= wire::kFlagLosses;
      ASSERT_TRUE(rig.ranks[r]->send(h, LaneRig::bytes(values)).ok());
    }
    rig.settle();
  }
  for (const auto& rank : rig.ranks) {
    ASSERT_EQ(rank->arrived.size(), 2u);
    EXPECT_TRUE(rank->arrived[0].header.flags & wire::kFlagLosses);
    EXPECT_FALSE(rank->arrived[1].header.flags & wire::kFlagLosses);
  }
}

TEST(Lane, FoldsChunksLargerThanOneTurnAndKeepsTheirCrc) {
  LaneRig rig(3, 2, 1 * kMiB);
  rig.commit_all();
  std::vector<float> values(kMiB / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  for (uint32_t r = 0; r < 3; ++r) (void)rig.contribute(r, 0, values);
  rig.settle();
  for (float& v : values) v *= 3;
  ASSERT_EQ(rig.ranks[0]->arrived.size(), 1u);  // the receiving transport checked the CRC
  EXPECT_TRUE(rig.ranks[0]->arrived[0].header.flags & wire::kFlagPayloadCrc);
  EXPECT_EQ(LaneRig::floats(rig.ranks[0]->arrived[0].payload), values);
}

TEST(Lane, WaitsAnHourForALateRankAndNamesIt) {
  LaneRig rig(4);
  rig.commit_all();
  for (uint32_t r : {0u, 1u, 3u}) (void)rig.contribute(r, 0, {1});
  rig.settle();
  rig.advance(3600 * kSecond);
  rig.settle();
  EXPECT_TRUE(rig.events().empty());
  const auto missing = rig.session->missing();
  EXPECT_EQ(missing.count, 1u);
  EXPECT_EQ(missing.ranks[0], 2u);
  EXPECT_EQ(rig.now - missing.since, 3600 * kSecond);
  (void)rig.contribute(2, 0, {1});
  rig.settle();
  ASSERT_EQ(rig.ranks[0]->arrived.size(), 1u);
  EXPECT_EQ(wire::find_result_info(rig.ranks[0]->arrived[0].extensions)->lag_us, 3600u * 1000 * 1000);
  rig.advance(kSecond);
  rig.settle();
  EXPECT_EQ(rig.session->missing().since, 0);
}

struct BadFrame {
  const char* name;
  Errc reason;
  void (*spoil)(wire::FrameHeader&);
};

class LaneRefuses : public ::testing::TestWithParam<BadFrame> {};

TEST_P(LaneRefuses, AndClosesThatConnectionOnly) {
  LaneRig rig(2);
  rig.commit_all();
  wire::FrameHeader h = rig.header(0, 1);
  GetParam().spoil(h);
  (void)rig.ranks[1]->send(h, LaneRig::bytes({1}));
  rig.settle();
  const auto events = rig.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, LaneEvent::Kind::kClosed);
  EXPECT_EQ(events[0].rank, 1u);
  EXPECT_EQ(events[0].code, GetParam().reason) << to_string(events[0].code);
  EXPECT_EQ(rig.lane->counters().closed[static_cast<size_t>(GetParam().reason)].get(), 1u);
  EXPECT_FALSE(rig.ranks[0]->closed.has_value());
}

INSTANTIATE_TEST_SUITE_P(
    Frames, LaneRefuses,
    ::testing::Values(
        BadFrame{"session", Errc::kBadSession, [](wire::FrameHeader& h) { h.session = 8; }},
        BadFrame{"view_hash", Errc::kBadView, [](wire::FrameHeader& h) { h.view_hash ^= 1; }},
        BadFrame{"view_version", Errc::kBadView, [](wire::FrameHeader& h) { h.view_version = 1; }},
        BadFrame{"sequence_ahead", Errc::kBadSequence,
                 [](wire::FrameHeader& h) { h.sequence = 1, h.slot = 1; }},
        BadFrame{"slot", Errc::kBadSlot, [](wire::FrameHeader& h) { h.slot = 3; }},
        BadFrame{"type", Errc::kUnexpectedMessage,
                 [](wire::FrameHeader& h) { h.type = wire::FrameType::kResult; }},
        BadFrame{"control_on_lane", Errc::kUnexpectedMessage,
                 [](wire::FrameHeader& h) { h = wire::FrameHeader{.type = wire::FrameType::kLeave}; }},
        BadFrame{"resume", Errc::kUnexpectedMessage,
                 [](wire::FrameHeader& h) { h = wire::FrameHeader{.type = wire::FrameType::kResume}; }}),
    [](const auto& tested) { return tested.param.name; });

TEST(Lane, RefusesContributionsBeforeCommit) {
  LaneRig rig(2);
  (void)rig.contribute(0, 0, {1});
  rig.settle();
  ASSERT_EQ(rig.events().size(), 1u);
  EXPECT_EQ(rig.lane->counters().closed[static_cast<size_t>(Errc::kUnexpectedMessage)].get(), 1u);
}

TEST(Lane, RefusesAnotherIncarnation) {
  LaneRig rig(2);
  for (uint64_t i : {0u, 1u}) {
    const auto body = wire::encode_body(wire::Commit{.incarnation = 5 + i});
    (void)rig.ranks[i]->send(wire::control_header(wire::FrameType::kCommit, body, rig.plan.handle), body);
  }
  rig.settle();
  const auto events = rig.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Errc::kBadField);
}

TEST(Lane, RefusesASlotThatIsNotGranted) {
  LaneRig rig(2, 2);
  rig.commit_all();
  for (uint64_t s = 0; s < 3; ++s) (void)rig.contribute(0, s, {1});  // window is 2, rank 1 has sent nothing
  rig.settle();
  const auto events = rig.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Errc::kSlotNotGranted);
}

TEST(Lane, RefusesASequenceTwice) {
  LaneRig rig(2);
  rig.commit_all();
  (void)rig.contribute(0, 0, {1});
  (void)rig.contribute(0, 0, {1});
  rig.settle();
  const auto events = rig.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Errc::kBadSequence);
}

TEST(Lane, RefusesAChunkWhosePartialSumsWouldNotFit) {
  LaneRig rig(9, 2, 4096);
  rig.commit_all();
  (void)rig.ranks[0]->send(rig.header(0, 4096, wire::DType::kF8e4m3),
                           std::vector<std::byte>(4096));  // 16 KiB as f32
  rig.settle();
  const auto events = rig.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Errc::kBadLength);
}

TEST(Lane, NamesRanksAndValuesThatDisagree) {
  const auto mismatch = [](auto second) {
    LaneRig rig(3);
    rig.commit_all();
    (void)rig.contribute(0, 0, {1, 2, 3});
    rig.settle();
    second(rig);
    rig.settle();
    const auto events = rig.events();
    EXPECT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, LaneEvent::Kind::kFailed);
    EXPECT_EQ(events[0].code, Errc::kMismatch);
    return std::string(events[0].text.data());
  };
  EXPECT_THAT(mismatch([](LaneRig& rig) {
                (void)rig.contribute(2, 0, {1, 2, 3, 4});
              }),
              ::testing::AllOf(HasSubstr("count"), HasSubstr("rank 2"), HasSubstr("count 4"),
                               HasSubstr("rank 0"), HasSubstr("count 3")));
  EXPECT_THAT(mismatch([](LaneRig& rig) {
                (void)rig.contribute(2, 0, {1, 2, 3}, wire::Op::kMax);
              }),
              ::testing::AllOf(HasSubstr("on op"), HasSubstr("max"), HasSubstr("sum")));
  EXPECT_THAT(mismatch([](LaneRig& rig) {
                (void)rig.ranks[1]->send(rig.header(0, 3, wire::DType::kI32), LaneRig::bytes({1, 2, 3}));
              }),
              ::testing::AllOf(HasSubstr("on dtype"), HasSubstr("i32"), HasSubstr("f32")));
}

TEST(Lane, EndsTheSessionWhenARankGoesOnWithoutOneThatLeft) {
  LaneRig rig(3);
  rig.commit_all();
  rig.session->rank_left(2);
  rig.settle();
  (void)rig.events();
  (void)rig.contribute(0, 0, {1});
  rig.settle();
  const auto events = rig.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Errc::kRankLeft);
  EXPECT_THAT(events[0].text.data(), HasSubstr("rank 2 left"));
}

TEST(Lane, SendsTheReasonAndReleasesTheSessionWhenItEnds) {
  LaneRig rig(2);
  rig.commit_all();
  wire::Abort abort;
  abort.code = Errc::kPeerLost;
  abort.text = "rank 1 was lost";
  rig.session->set_ending(wire::encode_body(abort));
  ASSERT_TRUE(rig.lane->command({.kind = reducer::LaneCommand::Kind::kEnd, .session = rig.session.get()}));
  rig.settle();
  for (const auto& rank : rig.ranks) {
    ASSERT_EQ(rank->arrived.size(), 1u);
    wire::Abort got;
    ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(rank->arrived[0].payload), got).ok());
    EXPECT_EQ(got.text, "rank 1 was lost");
    if (rank->endpoint != nullptr) rank->endpoint->close(Errc::kClosed);
  }
  rig.settle();
  const auto events = rig.events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().kind, LaneEvent::Kind::kReleased);
  EXPECT_EQ(rig.lane->session_count(), 0u);
}

TEST(Lane, DoesNotWaitForeverForPeersThatDoNotClose) {
  LaneRig rig(2);
  rig.commit_all();
  ASSERT_TRUE(rig.lane->command({.kind = reducer::LaneCommand::Kind::kEnd, .session = rig.session.get()}));
  for (int i = 0; i < 10; ++i)
    (void)rig.lane->do_work(rig.now += 200 * kMillisecond);  // the ranks' side stands still
  EXPECT_EQ(rig.lane->session_count(), 1u);
  rig.session->close_now();
  for (int i = 0; i < 10; ++i) (void)rig.lane->do_work(rig.now += 200 * kMillisecond);
  EXPECT_EQ(rig.lane->session_count(), 0u);
}

}  // namespace
}  // namespace sluice::test
