#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/soak/memory_history.h"
#include "bench/e2e/soak/soak_plan.h"
#include "bench/e2e/soak/soak_report.h"
#include "bench/e2e/soak/time_sample.h"

namespace sluice::bench {
namespace {

bool same(const std::vector<SoakOperation>& a, const std::vector<SoakOperation>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SoakOperation& x, const SoakOperation& y) { return x.seed == y.seed; });
}

TEST(SoakPlan, SameSeedGivesSameOperations) {
  SoakPlan one(5, 4, kMiB);
  SoakPlan two(5, 4, kMiB);
  SoakPlan other(6, 4, kMiB);
  int differ = 0;
  for (int i = 0; i < 100; ++i) {
    const auto round = one.next_round();
    EXPECT_TRUE(same(round, two.next_round()));
    differ += same(round, other.next_round()) ? 0 : 1;
  }
  EXPECT_EQ(differ, 100);
}

TEST(SoakPlan, DrawsAllCombinationsWithinItsBounds) {
  SoakPlan plan(1, 3, 100'000);
  std::set<std::pair<wire::DType, wire::Op>> kinds;
  std::set<size_t> open;
  std::set<bool> in_place;
  std::set<size_t> offsets;
  size_t empty = 0;
  size_t small = 0;
  size_t large = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto round = plan.next_round();
    open.insert(round.size());
    for (const SoakOperation& o : round) {
      const size_t bytes = o.count * wire::size_of(o.dtype);
      EXPECT_LE(bytes, 100'000u);
      EXPECT_LT(o.offset, kSoakOffsets);
      kinds.emplace(o.dtype, o.op);
      in_place.insert(o.in_place);
      offsets.insert(o.offset);
      empty += o.count == 0 ? 1 : 0;
      small += bytes < 1000 ? 1 : 0;
      large += bytes > 50'000 ? 1 : 0;
    }
  }
  EXPECT_EQ(kinds.size(), wire::kPlainDTypeCount * wire::kOpCount);
  EXPECT_EQ(open, (std::set<size_t>{1, 2, 3}));
  EXPECT_EQ(in_place.size(), 2u);
  EXPECT_EQ(offsets.size(), kSoakOffsets);
  EXPECT_GT(empty, 0u);
  EXPECT_GT(small, 1000u);
  EXPECT_GT(large, 500u);
}

TEST(TimeSample, KeepsAUniformSampleBeyondItsCapacity) {
  TimeSample sample(1000);
  for (int i = 1; i <= 100'000; ++i) sample.add(i);
  const Quantiles q = sample.quantiles();
  EXPECT_EQ(q.count, 1000u);
  EXPECT_NEAR(q.median, 50'000, 8'000);  // five standard deviations
  sample.clear();
  sample.add(3);
  EXPECT_EQ(sample.quantiles().count, 1u);
  EXPECT_EQ(sample.quantiles().median, 3);
}

TEST(MemoryHistory, ReturnsTheEntryOfATime) {
  MemoryHistory history;
  EXPECT_EQ(history.at(0), 0u);
  for (Nanos t = 10; t <= 100; t += 10) history.add(t, static_cast<uint64_t>(t));
  EXPECT_EQ(history.at(10), 10u);
  EXPECT_EQ(history.at(11), 20u);
  EXPECT_EQ(history.at(1000), 100u);
}

TEST(MemoryHistory, KeepsEvenlySpacedEntriesOfALongRun) {
  MemoryHistory history;
  constexpr Nanos kEntries = 1'000'000;
  for (Nanos t = 1; t <= kEntries; ++t) history.add(t, static_cast<uint64_t>(t));
  for (const Nanos t : {kEntries / 10, kEntries / 2}) {
    EXPECT_GE(history.at(t), static_cast<uint64_t>(t));
    EXPECT_LE(history.at(t), static_cast<uint64_t>(t + 3 * kEntries / Nanos{MemoryHistory::kCapacity}));
  }
}

TEST(MemoryHistory, ResidentBytesOfThisProcessArePositive) {
  EXPECT_GT(resident_bytes(), kMiB);
}

// Uses a rank that prints nothing and checks the exit codes.
TEST(SoakReport, FailsOnWrongDataAndOnGrowth) {
  SoakOptions options;
  WorkerOptions worker;
  worker.rank = 1;
  SoakSummary summary;
  const auto code = [&] { return SoakReport(options, worker, {}, 1).finish(summary); };
  summary.most_growth = 2 * kMiB;
  EXPECT_EQ(code(), kExitOk) << "no limit is set";
  options.max_growth = 2 * kMiB;
  EXPECT_EQ(code(), kExitOk);
  options.max_growth = 2 * kMiB - 1;
  EXPECT_EQ(code(), kExitCheckFailed);
  summary.most_growth = 0;
  EXPECT_EQ(code(), kExitOk);
  summary.total.wrong = 1;
  EXPECT_EQ(code(), kExitCheckFailed);
}

}  // namespace
}  // namespace sluice::bench
