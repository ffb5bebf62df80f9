#include "store/leader/step_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace sluice::store {
namespace {

using ::testing::ElementsAre;

constexpr Nanos kNow = kSecond;
constexpr StepMode kSyncOfTwo{.kind = StepKind::kSync, .quorum = 2, .grace_ms = 100};
constexpr StepMode kEach{.kind = StepKind::kAsync};

StagedPush push(uint64_t worker, uint64_t number, uint64_t base, float weight = 1) {
  return {.identity = {.worker = worker, .number = number}, .base = base, .weight = weight};
}

std::vector<uint64_t> workers_of(const std::vector<StagedPush>& pushes) {
  std::vector<uint64_t> workers;
  for (const StagedPush& p : pushes) workers.push_back(p.identity.worker);
  return workers;
}

// The planner, and the step that it starts at a time.
class Planner : public StepPlanner {
 public:
  explicit Planner(const StepMode& mode, uint64_t current = 0, std::map<uint64_t, uint64_t> contained = {})
      : StepPlanner(mode, current, std::move(contained)) {}
  std::optional<PlannedStep> step(Nanos now = kNow) { return next_step(now, stale); }
  std::vector<StagedPush> stale;
};

TEST(StepPlanner, RemembersTheLastWorkers) {
  Planner p(kEach);
  const auto make = [&](uint64_t worker) {
    EXPECT_EQ(p.offer(push(worker, 100 + worker, 0), kNow), Admission::kAccepted);
    ASSERT_TRUE(p.step());
    (void)p.committed();
  };
  for (uint64_t worker = 0; worker <= 2 * StepPlanner::kRemembered; ++worker) make(worker);
  const uint64_t last = 2 * StepPlanner::kRemembered, first = last - StepPlanner::kRemembered + 1;
  EXPECT_EQ(p.offer(push(last, 100 + last, 0), kNow), Admission::kContained);
  EXPECT_EQ(p.offer(push(first, 100 + first, 0), kNow), Admission::kContained);
  EXPECT_EQ(p.offer(push(first - 1, 100 + first - 1, 0), kNow), Admission::kAccepted) << "forgotten";
}

TEST(StepPlanner, ASynchronousStepWaitsForTheQuorumAndTheGrace) {
  Planner p(kSyncOfTwo);
  EXPECT_EQ(p.offer(push(7, 1, 0), kNow), Admission::kAccepted);
  EXPECT_FALSE(p.deadline());
  EXPECT_FALSE(p.step(kNow + 10 * kSecond));
  EXPECT_EQ(p.offer(push(3, 1, 0), kNow), Admission::kAccepted);
  const Nanos end = kNow + 100 * kMillisecond;
  EXPECT_EQ(p.deadline(), end);
  EXPECT_FALSE(p.step(end - 1));
  EXPECT_EQ(p.offer(push(5, 1, 0, 0.5F), end - 1), Admission::kAccepted);
  EXPECT_EQ(p.deadline(), end) << "another push does not extend the grace";
  const auto step = p.step(end);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->version, 1u);
  EXPECT_THAT(workers_of(step->pushes), ElementsAre(3, 5, 7));
  EXPECT_EQ(step->pushes[1].weight, 0.5F);
  EXPECT_EQ(p.offer(push(9, 1, 0), end), Admission::kAccepted) << "the step may be abandoned";
  EXPECT_FALSE(p.step(end + kSecond)) << "one step at a time";
  EXPECT_THAT(workers_of(p.committed()), ElementsAre(9));
  EXPECT_EQ(p.current(), 1u);
  EXPECT_EQ(p.offer(push(9, 1, 0), end), Admission::kLate);
  EXPECT_EQ(p.offer(push(9, 1, 1), end), Admission::kAccepted);
}

TEST(StepPlanner, APushCountsOnce) {
  for (const StepMode& mode : {kSyncOfTwo, kEach}) {
    Planner p(mode, 4, {{1, 10}});
    EXPECT_EQ(p.offer(push(1, 10, 3), kNow), Admission::kContained);
    EXPECT_EQ(p.offer(push(1, 9, 3), kNow), Admission::kSuperseded);
    EXPECT_EQ(p.offer(push(1, 11, 4), kNow), Admission::kAccepted);
    EXPECT_EQ(p.offer(push(1, 11, 4), kNow), Admission::kWaits);
    EXPECT_EQ(p.offer(push(2, 1, 4), kNow), Admission::kAccepted);
    ASSERT_TRUE(p.step(kNow + kSecond));
    EXPECT_EQ(p.offer(push(1, 11, 4), kNow), Admission::kWaits) << "in the step in progress";
    EXPECT_TRUE(p.committed().empty());
    EXPECT_EQ(p.offer(push(1, 11, 4), kNow), Admission::kContained);
  }
}

TEST(StepPlanner, ANewerPushReplacesAnOlderOneThatWaits) {
  Planner p(kSyncOfTwo);
  EXPECT_EQ(p.offer(push(1, 1, 0), kNow), Admission::kAccepted);
  EXPECT_EQ(p.offer(push(1, 2, 0, 3), kNow), Admission::kAccepted);
  EXPECT_EQ(p.offer(push(1, 1, 0), kNow), Admission::kSuperseded);
  EXPECT_FALSE(p.deadline()) << "the quorum counts workers";
  EXPECT_EQ(p.offer(push(2, 1, 0), kNow), Admission::kAccepted);
  const auto step = p.step(kNow + kSecond);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->pushes[0].weight, 3);
}

TEST(StepPlanner, AnAbandonedStepIsPlannedAgainAtOnce) {
  Planner p(kSyncOfTwo);
  for (const uint64_t worker : {2u, 1u}) {
    auto early = push(worker, 1, 0);
    early.is_early = true;
    ASSERT_EQ(p.offer(early, kNow), Admission::kAccepted);
  }
  const auto first = p.step(kNow + kSecond);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->pushes[0].is_early);
  p.abandoned();
  EXPECT_EQ(p.offer(push(3, 1, 0), kNow), Admission::kAccepted);
  const auto again = p.step(kNow + kSecond);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->version, 1u);
  EXPECT_THAT(workers_of(again->pushes), ElementsAre(1, 2, 3));
  EXPECT_FALSE(again->pushes[0].is_early);  // an owner may have got it that is gone
}

// The worker pushes again while the step is made, and the step is abandoned.
TEST(StepPlanner, ANewerPushReplacesTheOneOfAnAbandonedStep) {
  Planner p(kSyncOfTwo);
  for (const uint64_t worker : {1u, 2u}) ASSERT_EQ(p.offer(push(worker, 1, 0), kNow), Admission::kAccepted);
  ASSERT_TRUE(p.step(kNow + kSecond));
  ASSERT_EQ(p.offer(push(2, 2, 0), kNow), Admission::kAccepted);
  p.abandoned();
  const auto again = p.step(kNow + kSecond);
  ASSERT_TRUE(again);
  ASSERT_THAT(workers_of(again->pushes), ElementsAre(1, 2));
  EXPECT_EQ(again->pushes[1].identity.number, 2U);
}

TEST(StepPlanner, AWorkerThatWithdrawsMayUndoTheQuorum) {
  Planner p(kSyncOfTwo);
  for (const uint64_t worker : {1u, 2u}) ASSERT_EQ(p.offer(push(worker, 1, 0), kNow), Admission::kAccepted);
  p.withdraw({.worker = 2, .number = 9});  // another push
  EXPECT_TRUE(p.deadline());
  p.withdraw({.worker = 2, .number = 1});
  EXPECT_FALSE(p.deadline());
  EXPECT_FALSE(p.step(kNow + kSecond));
  EXPECT_EQ(p.offer(push(2, 2, 0), kNow + kSecond), Admission::kAccepted);
  EXPECT_EQ(p.deadline(), kNow + kSecond + 100 * kMillisecond);
}

TEST(StepPlanner, RefusesABaseFromTheFuture) {
  for (const StepMode& mode : {kSyncOfTwo, kEach, StepMode{.kind = StepKind::kBounded, .staleness = 4}}) {
    Planner p(mode, 3);
    EXPECT_EQ(p.offer(push(1, 1, 4), kNow), Admission::kFuture);
  }
}

TEST(StepPlanner, BoundsTheStalenessWhenThePushIsOfferedAndWhenItsStepStarts) {
  Planner p({.kind = StepKind::kBounded, .staleness = 1}, 5);
  EXPECT_EQ(p.offer(push(1, 1, 3), kNow), Admission::kStale);
  for (const uint64_t worker : {1u, 2u, 3u})
    ASSERT_EQ(p.offer(push(worker, 2, 5), kNow), Admission::kAccepted);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(p.step());
    EXPECT_TRUE(p.committed().empty());
  }
  EXPECT_FALSE(p.step()) << "version 7 is two steps from base 5";
  EXPECT_THAT(workers_of(p.stale), ElementsAre(3));
}

TEST(StepPlanner, ScalesTheWeightOfAStalePush) {
  Planner p({.kind = StepKind::kBounded, .staleness = 1, .stale = StalePush::kScale}, 5);
  ASSERT_EQ(p.offer(push(1, 1, 2, 3), kNow), Admission::kAccepted);
  EXPECT_EQ(p.step()->pushes[0].weight, 3 * 2.F / 4.F);
}

// Workers push in any order and speed, steps fail now and then: no push counts twice, none that was
// acknowledged is missing, and none in bounded mode is based on a version that is too old.
TEST(StepPlanner, RandomWorkersNeverExceedTheBounds) {
  constexpr int kPushes = 1'000'000;
  constexpr uint64_t kStaleness = 4, kWorkers = 16;
  Planner p({.kind = StepKind::kBounded, .staleness = kStaleness});
  std::mt19937_64 random(3);
  std::vector<uint64_t> base(kWorkers), number(kWorkers, 1), last_counted(kWorkers);
  std::optional<PlannedStep> step;
  uint64_t refused = 0, counted = 0, oldest = 0;
  for (int i = 0; i < kPushes; ++i) {
    const uint64_t worker = random() % kWorkers;
    if (random() % 3 == 0) base[worker] = p.current();  // a pull
    switch (p.offer(push(worker, number[worker], base[worker]), kNow)) {
      case Admission::kStale:
        ++refused;
        base[worker] = p.current();
        break;
      case Admission::kContained:
        EXPECT_EQ(last_counted[worker], number[worker]);
        ++number[worker];
        break;
      case Admission::kAccepted:
      case Admission::kWaits: break;
      default: FAIL() << "worker " << worker;
    }
    if (!step) step = p.step();
    if (step && random() % 2 == 0) {
      if (random() % 8 == 0) {
        p.abandoned();
      } else {
        const StagedPush& only = step->pushes.front();
        oldest = std::max(oldest, p.current() - only.base);
        ASSERT_GT(only.identity.number, last_counted[only.identity.worker]);
        last_counted[only.identity.worker] = only.identity.number;
        ++counted;
        (void)p.committed();
      }
      step.reset();
    }
  }
  EXPECT_EQ(oldest, kStaleness) << "the bound is reached, and never exceeded";
  EXPECT_GT(refused, 1000u);
  EXPECT_EQ(counted, p.current());
}

}  // namespace
}  // namespace sluice::store
