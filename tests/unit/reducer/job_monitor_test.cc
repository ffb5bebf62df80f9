#include "reducer/control/job_monitor.h"

#include <gtest/gtest.h>

namespace sluice::reducer {
namespace {

using State = JobMonitor::State;

constexpr Nanos kBegin = 5 * kSecond;
constexpr JobMonitor::Options kOptions{
    .expected_ranks = 4, .arrival_timeout = 600 * kSecond, .idle_timeout = 30 * kSecond};

State state_at(JobMonitor& monitor, Nanos seconds, bool has_sessions = false) {
  return monitor.check(kBegin + seconds * kSecond, has_sessions);
}

TEST(JobMonitor, IsDoneAfterAllRanksJoinedAndAllSessionsEnded) {
  JobMonitor monitor(kOptions, kBegin);
  EXPECT_EQ(state_at(monitor, 100), State::kRunning) << "no rank has joined yet";
  monitor.on_join(3, kBegin + 110 * kSecond);
  monitor.on_join(4, kBegin + 120 * kSecond);
  EXPECT_EQ(state_at(monitor, 121, true), State::kRunning);
  EXPECT_EQ(state_at(monitor, 5000, true), State::kRunning) << "the job runs";
  EXPECT_EQ(state_at(monitor, 5029), State::kRunning) << "the next communicator may follow";
  EXPECT_EQ(state_at(monitor, 5030), State::kDone);
}

TEST(JobMonitor, CountsRanksThatAreJoinedAtTheSameTime) {
  JobMonitor monitor(kOptions, kBegin);
  for (Nanos t = 0; t < 8; ++t) monitor.on_join(1, kBegin + t * kSecond);  // consecutive sessions of one rank
  EXPECT_EQ(monitor.max_ranks(), 1u);
  EXPECT_EQ(state_at(monitor, 100), State::kRunning);
}

TEST(JobMonitor, CountsASessionThatEndsBetweenTwoChecks) {
  JobMonitor monitor(kOptions, kBegin);
  monitor.on_join(4, kBegin + 10 * kSecond);
  EXPECT_EQ(state_at(monitor, 20), State::kRunning);
  monitor.on_join(4, kBegin + 25 * kSecond);
  EXPECT_EQ(state_at(monitor, 45), State::kRunning) << "idle for 20 s since the second session";
  EXPECT_EQ(state_at(monitor, 55), State::kDone);
}

TEST(JobMonitor, NeverStartsIfNoRankJoins) {
  JobMonitor monitor(kOptions, kBegin);
  EXPECT_EQ(state_at(monitor, 599), State::kRunning);
  EXPECT_EQ(state_at(monitor, 600), State::kNeverStarted);
}

TEST(JobMonitor, KeepsRunningWhileThereIsASessionOfFewerRanks) {
  JobMonitor monitor(kOptions, kBegin);
  monitor.on_join(3, kBegin + 10 * kSecond);
  EXPECT_EQ(state_at(monitor, 700, true), State::kRunning);
  EXPECT_EQ(state_at(monitor, 729), State::kRunning);
  EXPECT_EQ(state_at(monitor, 730), State::kNeverStarted);
}

TEST(JobMonitor, APushCountsAsTheArrivalOfAllRanks) {
  JobMonitor monitor(kOptions, kBegin);
  EXPECT_EQ(state_at(monitor, 650, true), State::kRunning) << "a connection of models is open";
  monitor.on_push();
  EXPECT_EQ(state_at(monitor, 679), State::kRunning);
  EXPECT_EQ(state_at(monitor, 680), State::kDone);
}

TEST(JobMonitor, WaitsForeverWithoutAnArrivalTimeout) {
  JobMonitor monitor({.expected_ranks = 1, .arrival_timeout = 0, .idle_timeout = 0}, kBegin);
  EXPECT_EQ(state_at(monitor, 1'000'000), State::kRunning);
}

TEST(JobMonitor, MonitorsNothingWithoutExpectedRanks) {
  JobMonitor monitor({.expected_ranks = 0, .arrival_timeout = kSecond, .idle_timeout = 0}, kBegin);
  monitor.on_join(1, kBegin);
  EXPECT_EQ(state_at(monitor, 100), State::kRunning);
}

}  // namespace
}  // namespace sluice::reducer
