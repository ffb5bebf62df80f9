// Many sessions on one lane, of which one at most has something to do.
#include <gtest/gtest.h>

#include <deque>

#include "tests/support/lane_test_bed.h"

namespace sluice::test {
namespace {

constexpr uint32_t kIdle = 200;

// A session of one rank, which has connected and sends nothing.
struct IdleSession {
  IdleSession(LaneTestBed& test_bed, uint32_t handle)
      : plan{.handle = handle, .ranks = 1, .slots = 2, .slot_bytes = 4096, .view_version = 0, .view_hash = 1},
        session(plan, *reducer::SlotArena::map(plan)),
        far(test_bed.network->make_context()) {
    auto [near_end, far_end] = test_bed.network->connect(test_bed.lane->context(), session.connection(0),
                                                         *far, rank, test_bed.lane->endpoint_options(plan));
    rank.endpoint = far_end;
    test_bed.lane->attach(session, 0, *near_end);
  }
  IdleSession(const IdleSession&) = delete;

  const reducer::SessionPlan plan;
  reducer::LaneSession session;
  ScriptedRank rank;
  std::unique_ptr<transport::Context> far;
};

class LaneIdleTest : public ::testing::Test {
 protected:
  LaneIdleTest() {
    for (uint32_t i = 0; i < kIdle; ++i) idle.emplace_back(test_bed, 100 + i);
    test_bed.commit_all();
    const auto body = wire::encode_body(wire::Commit{.incarnation = 7});
    for (IdleSession& i : idle) {
      const auto header = wire::control_header(wire::FrameType::kCommit, body, i.plan.handle);
      EXPECT_TRUE(i.rank.send(header, body).ok());
    }
    test_bed.settle();
  }
  ~LaneIdleTest() override { test_bed.lane.reset(); }  // its endpoints refer to the sessions' connections
  unsigned turn() { return test_bed.lane->do_work(test_bed.now); }

  std::deque<IdleSession> idle;
  LaneTestBed test_bed{1};
};

TEST_F(LaneIdleTest, ATurnLooksAtSessionsWithWorkOnly) {
  const reducer::LaneWork& work = test_bed.lane->work();
  EXPECT_TRUE(work.folds.empty() && work.events.empty());
  ASSERT_TRUE(test_bed.contribute(0, 0, {1.0F}).ok());
  turn();
  EXPECT_EQ(work.folds, std::vector{test_bed.session.get()});
  test_bed.settle();
  EXPECT_EQ(test_bed.results(0).size(), 1U);
  EXPECT_TRUE(work.folds.empty() && work.events.empty());
}

TEST_F(LaneIdleTest, APassOverAllTakesSeveralTurns) {
  test_bed.settle();
  EXPECT_GT(test_bed.lane->idle_limit(), 0);
  test_bed.advance(2 * kSecond);
  for (int i = 0; i < 3; ++i) {
    turn();
    EXPECT_EQ(test_bed.lane->idle_limit(), 0) << "the lane must not sleep within a pass";
  }
  turn();
  EXPECT_GT(test_bed.lane->idle_limit(), 0);
}

TEST_F(LaneIdleTest, APassPassesOverWhatWasIdleLately) {
  const auto due = [&] {
    return std::ranges::count_if(test_bed.lane->work().tick_due,
                                 [&](Nanos at) { return at <= test_bed.now; });
  };
  for (int pass = 0; pass < 4; ++pass) {  // the first ones have something to count
    do turn();
    while (test_bed.lane->idle_limit() == 0);
    test_bed.advance(100 * kMillisecond);
  }
  EXPECT_EQ(due(), 0);
  // The first chunk of an operation makes its session due, whose rank 0 others may wait for.
  ASSERT_TRUE(test_bed.contribute(0, 0, {1.0F}).ok());
  turn();
  test_bed.advance(100 * kMillisecond);
  EXPECT_EQ(due(), 1);
  test_bed.advance(kSecond);
  EXPECT_EQ(due(), kIdle + 1);
}

// The pass closes what waits for its peer, in any order of places.
TEST_F(LaneIdleTest, ReleasesAllOfThem) {
  for (IdleSession& i : idle) {
    i.session.close_now();
    ASSERT_TRUE(test_bed.lane->command({.kind = reducer::LaneCommand::Kind::kEnd, .session = &i.session}));
  }
  size_t released = 0;
  for (int pass = 0; pass < 10 && released < kIdle; ++pass) {
    test_bed.advance(kSecond);
    test_bed.settle();
    released += static_cast<size_t>(std::ranges::count_if(
        test_bed.events(), [](const auto& e) { return e.kind == reducer::LaneEvent::Kind::kReleased; }));
  }
  EXPECT_EQ(released, kIdle);
  EXPECT_EQ(test_bed.lane->session_count(), 1U);
  ASSERT_TRUE(test_bed.contribute(0, 0, {1.0F}).ok());
  test_bed.settle();
  EXPECT_EQ(test_bed.results(0).size(), 1U);
}

}  // namespace
}  // namespace sluice::test
