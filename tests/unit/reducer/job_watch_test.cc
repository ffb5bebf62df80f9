#include "reducer/control/job_watch.h"

#include <gtest/gtest.h>

namespace sluice::reducer {
namespace {

using Verdict = JobWatch::Verdict;

constexpr Nanos kBegin = 5 * kSecond;
constexpr JobWatch::Terms kTerms{.expected = 4, .arrival = 600 * kSecond, .idle = 30 * kSecond};

Verdict at(JobWatch& watch, Nanos seconds, bool has_sessions = false) {
  return watch.look(kBegin + seconds * kSecond, has_sessions);
}

TEST(JobWatch, EndsOnceAllHaveComeAndGone) {
  JobWatch watch(kTerms, kBegin);
  EXPECT_EQ(at(watch, 100), Verdict::kGoOn) << "nobody has come yet";
  watch.joined(3, kBegin + 110 * kSecond);
  watch.joined(4, kBegin + 120 * kSecond);
  EXPECT_EQ(at(watch, 121, true), Verdict::kGoOn);
  EXPECT_EQ(at(watch, 5000, true), Verdict::kGoOn) << "the job runs";
  EXPECT_EQ(at(watch, 5029), Verdict::kGoOn) << "the next communicator may follow";
  EXPECT_EQ(at(watch, 5030), Verdict::kDone);
}

TEST(JobWatch, CountsWhoIsHereAtATime) {
  JobWatch watch(kTerms, kBegin);
  for (Nanos t = 0; t < 8; ++t)
    watch.joined(1, kBegin + t * kSecond);  // one after the other: a check of each
  EXPECT_EQ(watch.most(), 1u);
  EXPECT_EQ(at(watch, 100), Verdict::kGoOn);
}

TEST(JobWatch, CountsASessionThatCameAndWentBetweenTwoLooks) {
  JobWatch watch(kTerms, kBegin);
  watch.joined(4, kBegin + 10 * kSecond);
  EXPECT_EQ(at(watch, 20), Verdict::kGoOn);
  watch.joined(4, kBegin + 25 * kSecond);
  EXPECT_EQ(at(watch, 45), Verdict::kGoOn) << "quiet for 20 s since the second";
  EXPECT_EQ(at(watch, 55), Verdict::kDone);
}

TEST(JobWatch, GivesUpWhenNobodyComes) {
  JobWatch watch(kTerms, kBegin);
  EXPECT_EQ(at(watch, 599), Verdict::kGoOn);
  EXPECT_EQ(at(watch, 600), Verdict::kNeverCame);
}

TEST(JobWatch, EndsNoSessionOfFewerRanks) {
  JobWatch watch(kTerms, kBegin);
  watch.joined(3, kBegin + 10 * kSecond);
  EXPECT_EQ(at(watch, 700, true), Verdict::kGoOn);
  EXPECT_EQ(at(watch, 729), Verdict::kGoOn);
  EXPECT_EQ(at(watch, 730), Verdict::kNeverCame);
}

TEST(JobWatch, WaitsForEverWhereNoTimeIsSet) {
  JobWatch watch({.expected = 1, .arrival = 0, .idle = 0}, kBegin);
  EXPECT_EQ(at(watch, 1'000'000), Verdict::kGoOn);
}

TEST(JobWatch, WatchesNothingWithoutANumber) {
  JobWatch watch({.expected = 0, .arrival = kSecond, .idle = 0}, kBegin);
  watch.joined(1, kBegin);
  EXPECT_EQ(at(watch, 100), Verdict::kGoOn);
}

}  // namespace
}  // namespace sluice::reducer
