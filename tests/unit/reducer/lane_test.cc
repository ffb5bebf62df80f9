// Lane with one session over scripted connections: sums, refused frames, failures and the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "tests/support/lane_test_bed.h"

namespace sluice::test {
namespace {

using reducer::LaneEvent;
using ::testing::HasSubstr;

// Implements protocol.md section 7 independently: the balanced binary tree over the ranks.
float sum_as_tree(std::span<const float> by_rank) {
  if (by_rank.size() == 1) return by_rank[0];
  size_t left = 1;
  while (2 * left < by_rank.size()) left *= 2;
  return sum_as_tree(by_rank.first(left)) + sum_as_tree(by_rank.subspan(left));
}

// The order of earlier releases: ((r0+r1)+r2)+... in groups of eight, then over the groups.
float sum_in_groups(std::span<const float> by_rank) {
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

// 100 values of which many f32 sums depend on the order of the additions.
std::vector<float> order_dependent_values(uint32_t rank) {
  std::mt19937 random(rank);
  std::vector<float> values(100);
  for (float& v : values) v = static_cast<float>(static_cast<int32_t>(random())) * 1e-5F;
  return values;
}

// Element by element, by one of the functions above.
std::vector<float> sum_by(float (*sum)(std::span<const float>),
                          const std::vector<std::vector<float>>& by_rank) {
  std::vector<float> all, column(by_rank.size());
  for (size_t i = 0; i < by_rank[0].size(); ++i) {
    for (size_t r = 0; r < by_rank.size(); ++r) column[r] = by_rank[r][i];
    all.push_back(sum(column));
  }
  return all;
}

// Settles and returns the code of the lane's only event.
Errc code_of_event(LaneTestBed& test_bed) {
  test_bed.settle();
  const auto events = test_bed.events();
  EXPECT_EQ(events.size(), 1u);
  return events.empty() ? Errc::kOk : events[0].code;
}

// The order of sums depends on the ranks' numbers alone.
void expect_sums_for_any_order_of_arrival(uint32_t n, wire::SumOrder sum_order) {
  std::vector<std::vector<float>> by_rank;
  std::vector<uint32_t> order;
  for (uint32_t r = 0; r < n; ++r) by_rank.push_back(order_dependent_values(r)), order.push_back(r);
  const std::vector<float> tree = sum_by(sum_as_tree, by_rank);
  const std::vector<float> groups = sum_by(sum_in_groups, by_rank);
  EXPECT_EQ(tree == groups, n <= 3) << "the values show no order, n " << n;
  const std::vector<float>& expected = sum_order == wire::SumOrder::kTree ? tree : groups;
  LaneTestBed test_bed(n, 4, 4096, false, false, sum_order);
  test_bed.commit_all();
  for (uint64_t sequence = 0; sequence < 12; ++sequence) {
    std::rotate(order.begin(), order.begin() + static_cast<long>(sequence % n), order.end());
    if (sequence % 3 == 0) std::ranges::reverse(order);
    for (uint32_t r : order) {
      ASSERT_TRUE(test_bed.contribute(r, sequence, by_rank[r]).ok());
      test_bed.settle();
    }
    for (const auto& rank : test_bed.ranks) {
      ASSERT_EQ(rank->arrived.size(), sequence + 1) << "n " << n;
      const auto& result = rank->arrived.back();
      EXPECT_EQ(result.header.type, wire::FrameType::kResult);
      EXPECT_EQ(result.header.sequence, sequence);
      EXPECT_EQ(LaneTestBed::floats(result.payload), expected) << "n " << n;
      EXPECT_EQ(wire::find_result_info(result.extensions)->last_rank, order.back());
    }
  }
}

TEST(Lane, SumsAsATreeForAnyOrderOfArrival) {
  for (uint32_t n : {1u, 2u, 3u, 4u, 7u, 8u, 9u, 17u, 27u, 40u})
    expect_sums_for_any_order_of_arrival(n, wire::SumOrder::kTree);
}

TEST(Lane, SumsInGroupsForEarlierReleases) {
  for (uint32_t n : {1u, 2u, 3u, 4u, 7u, 8u, 9u, 17u, 27u, 40u})
    expect_sums_for_any_order_of_arrival(n, wire::SumOrder::kGroups);
}

TEST(Lane, ExpectsFramesLikeTheLastOneInGrantedSlots) {
  LaneTestBed test_bed(2, 4);
  test_bed.commit_all();
  transport::Endpoint& ep = *test_bed.ranks[0]->endpoint;  // unused by the handler
  const auto next = [&](unsigned ahead) {
    return test_bed.session->connection(Rank{0}).expected_frame(ep, ahead);
  };
  EXPECT_EQ(next(0).length, 0u) << "no contribution yet";
  const std::vector<float> values(100);
  ASSERT_TRUE(test_bed.contribute(0, 0, values).ok());
  test_bed.settle();
  EXPECT_EQ(next(0).length, 400u);
  EXPECT_NE(next(0).payload, next(1).payload);
  EXPECT_EQ(next(2).length, 400u);
  // Contribution 4 uses the slot of contribution 0, which rank 1 has not contributed to.
  EXPECT_EQ(next(3).length, 0u);
  ASSERT_TRUE(test_bed.contribute(1, 0, values).ok());
  test_bed.settle();
  EXPECT_EQ(next(3).length, 400u);
  EXPECT_EQ(next(4).length, 0u);
}

TEST(Lane, ReportsPacketLossesOfOneRankOnceToEveryRank) {
  LaneTestBed test_bed(3);
  test_bed.commit_all();
  const std::vector<float> values(100, 1.0f);
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    for (uint32_t r = 0; r < 3; ++r) {
      wire::FrameHeader h = test_bed.header(sequence, values.size());
      if (sequence == 0 && r == 1) h.flags |= wire::kFlagLosses;
      ASSERT_TRUE(test_bed.ranks[r]->send(h, LaneTestBed::bytes(values)).ok());
    }
    test_bed.settle();
  }
  for (const auto& rank : test_bed.ranks) {
    ASSERT_EQ(rank->arrived.size(), 2u);
    EXPECT_TRUE(rank->arrived[0].header.flags & wire::kFlagLosses);
    EXPECT_FALSE(rank->arrived[1].header.flags & wire::kFlagLosses);
  }
}

TEST(Lane, FoldsChunksLargerThanOneTurnWithACorrectCrc) {
  LaneTestBed test_bed(3, 2, 1 * kMiB);
  test_bed.commit_all();
  std::vector<float> values(kMiB / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  for (uint32_t r = 0; r < 3; ++r) (void)test_bed.contribute(r, 0, values);
  test_bed.settle();
  for (float& v : values) v *= 3;
  ASSERT_EQ(test_bed.ranks[0]->arrived.size(), 1u);  // the receiving transport checked the CRC
  EXPECT_TRUE(test_bed.ranks[0]->arrived[0].header.flags & wire::kFlagPayloadCrc);
  EXPECT_EQ(LaneTestBed::floats(test_bed.ranks[0]->arrived[0].payload), values);
}

TEST(Lane, WaitsForALateRankAndReportsIt) {
  LaneTestBed test_bed(4);
  test_bed.commit_all();
  for (uint32_t r : {0u, 1u, 3u}) (void)test_bed.contribute(r, 0, {1});
  test_bed.settle();
  test_bed.advance(3600 * kSecond);
  test_bed.settle();
  EXPECT_TRUE(test_bed.events().empty());
  const auto missing = test_bed.session->missing();
  EXPECT_EQ(missing.count, 1u);
  EXPECT_EQ(missing.ranks[0], 2u);
  EXPECT_EQ(test_bed.now - missing.since, 3600 * kSecond);
  (void)test_bed.contribute(2, 0, {1});
  test_bed.settle();
  ASSERT_EQ(test_bed.ranks[0]->arrived.size(), 1u);
  EXPECT_EQ(wire::find_result_info(test_bed.ranks[0]->arrived[0].extensions)->lag_us, 3600u * 1000 * 1000);
  test_bed.advance(kSecond);
  test_bed.settle();
  EXPECT_EQ(test_bed.session->missing().since, 0);
}

struct BadFrame {
  const char* name;
  Errc reason;
  void (*modify)(wire::FrameHeader&);
};

class LaneBadFrameTest : public ::testing::TestWithParam<BadFrame> {};

TEST_P(LaneBadFrameTest, ClosesOnlyTheConnectionOfTheSender) {
  LaneTestBed test_bed(2);
  test_bed.commit_all();
  wire::FrameHeader h = test_bed.header(0, 1);
  GetParam().modify(h);
  (void)test_bed.ranks[1]->send(h, LaneTestBed::bytes({1}));
  test_bed.settle();
  const auto events = test_bed.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, LaneEvent::Kind::kClosed);
  EXPECT_EQ(events[0].rank, 1u);
  EXPECT_EQ(events[0].code, GetParam().reason) << to_string(events[0].code);
  EXPECT_EQ(test_bed.lane->counters().closed[static_cast<size_t>(GetParam().reason)].get(), 1u);
  EXPECT_FALSE(test_bed.ranks[0]->closed.has_value());
}

INSTANTIATE_TEST_SUITE_P(
    Frames, LaneBadFrameTest,
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
  LaneTestBed test_bed(2);
  (void)test_bed.contribute(0, 0, {1});
  test_bed.settle();
  ASSERT_EQ(test_bed.events().size(), 1u);
  EXPECT_EQ(test_bed.lane->counters().closed[static_cast<size_t>(Errc::kUnexpectedMessage)].get(), 1u);
}

TEST(Lane, RefusesAnotherIncarnation) {
  LaneTestBed test_bed(2);
  for (uint32_t i : {0u, 1u}) (void)test_bed.send(i, wire::Commit{.incarnation = 5 + i});
  EXPECT_EQ(code_of_event(test_bed), Errc::kBadField);
}

TEST(Lane, RefusesASlotThatIsNotGranted) {
  LaneTestBed test_bed(2, 2);
  test_bed.commit_all();
  // The window is 2, and rank 1 sends nothing.
  for (uint64_t s = 0; s < 3; ++s) (void)test_bed.contribute(0, s, {1});
  EXPECT_EQ(code_of_event(test_bed), Errc::kSlotNotGranted);
}

TEST(Lane, RefusesARepeatedSequence) {
  LaneTestBed test_bed(2);
  test_bed.commit_all();
  (void)test_bed.contribute(0, 0, {1});
  (void)test_bed.contribute(0, 0, {1});
  EXPECT_EQ(code_of_event(test_bed), Errc::kBadSequence);
}

TEST(Lane, RefusesAChunkWhosePartialSumsDoNotFit) {
  LaneTestBed test_bed(9, 2, 4096);
  test_bed.commit_all();
  (void)test_bed.ranks[0]->send(test_bed.header(0, 4096, wire::DType::kF8e4m3),
                                std::vector<std::byte>(4096));  // 16 KiB as f32
  EXPECT_EQ(code_of_event(test_bed), Errc::kBadLength);
}

TEST(Lane, NamesTheRanksAndValuesOfAMismatch) {
  const auto mismatch = [](auto second) {
    LaneTestBed test_bed(3);
    test_bed.commit_all();
    (void)test_bed.contribute(0, 0, {1, 2, 3});
    test_bed.settle();
    second(test_bed);
    test_bed.settle();
    const auto events = test_bed.events();
    EXPECT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, LaneEvent::Kind::kFailed);
    EXPECT_EQ(events[0].code, Errc::kMismatch);
    return std::string(events[0].text.data());
  };
  EXPECT_THAT(mismatch([](LaneTestBed& test_bed) {
                (void)test_bed.contribute(2, 0, {1, 2, 3, 4});
              }),
              ::testing::AllOf(HasSubstr("count"), HasSubstr("rank 2"), HasSubstr("count 4"),
                               HasSubstr("rank 0"), HasSubstr("count 3")));
  EXPECT_THAT(mismatch([](LaneTestBed& test_bed) {
                (void)test_bed.contribute(2, 0, {1, 2, 3}, wire::Op::kMax);
              }),
              ::testing::AllOf(HasSubstr("on op"), HasSubstr("max"), HasSubstr("sum")));
  EXPECT_THAT(mismatch([](LaneTestBed& test_bed) {
                (void)test_bed.ranks[1]->send(test_bed.header(0, 3, wire::DType::kI32),
                                              LaneTestBed::bytes({1, 2, 3}));
              }),
              ::testing::AllOf(HasSubstr("on dtype"), HasSubstr("i32"), HasSubstr("f32")));
}

TEST(Lane, FailsTheSessionWhenARankContinuesAfterAnotherOneLeft) {
  LaneTestBed test_bed(3);
  test_bed.commit_all();
  test_bed.session->rank_left(2);
  test_bed.settle();
  (void)test_bed.events();
  (void)test_bed.contribute(0, 0, {1});
  test_bed.settle();
  const auto events = test_bed.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, Errc::kRankLeft);
  EXPECT_THAT(events[0].text.data(), HasSubstr("rank 2 left"));
}

TEST(Lane, SendsTheAbortAndReleasesTheSessionAtItsEnd) {
  LaneTestBed test_bed(2);
  test_bed.commit_all();
  test_bed.session->set_end_message(
      wire::encode_body(wire::Abort{{.code = Errc::kPeerLost, .text = "rank 1 lost"}}));
  ASSERT_TRUE(
      test_bed.lane->command({.kind = reducer::LaneCommand::Kind::kEnd, .session = test_bed.session.get()}));
  test_bed.settle();
  for (const auto& rank : test_bed.ranks) {
    ASSERT_EQ(rank->arrived.size(), 1u);
    wire::Abort got;
    ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(rank->arrived[0].payload), got).ok());
    EXPECT_EQ(got.text, "rank 1 lost");
    if (rank->endpoint != nullptr) rank->endpoint->close(Errc::kClosed);
  }
  test_bed.settle();
  const auto events = test_bed.events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().kind, LaneEvent::Kind::kReleased);
  EXPECT_EQ(test_bed.lane->session_count(), 0u);
}

TEST(Lane, CloseNowEndsTheWaitForPeersThatDoNotClose) {
  LaneTestBed test_bed(2);
  test_bed.commit_all();
  ASSERT_TRUE(
      test_bed.lane->command({.kind = reducer::LaneCommand::Kind::kEnd, .session = test_bed.session.get()}));
  for (int i = 0; i < 10; ++i)
    (void)test_bed.lane->do_work(test_bed.now += 200 * kMillisecond);  // the ranks are not polled
  EXPECT_EQ(test_bed.lane->session_count(), 1u);
  test_bed.session->close_now();
  for (int i = 0; i < 10; ++i) (void)test_bed.lane->do_work(test_bed.now += 200 * kMillisecond);
  EXPECT_EQ(test_bed.lane->session_count(), 0u);
}

}  // namespace
}  // namespace sluice::test
