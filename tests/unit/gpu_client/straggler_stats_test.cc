#include "gpu_client/engine/data_path/straggler_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace sluice::engine {
namespace {

Nanos total_of(const std::vector<std::pair<Nanos, Nanos>>& intervals) {
  IntervalUnion time;
  for (const auto& [begin, end] : intervals) time.add(begin, end);
  return time.total();
}

TEST(IntervalUnion, CountsOverlappingTimeOnce) {
  EXPECT_EQ(total_of({}), 0);
  EXPECT_EQ(total_of({{10, 20}, {10, 20}, {12, 20}, {5, 20}}), 15);
  EXPECT_EQ(total_of({{10, 20}, {15, 30}}), 20);
  EXPECT_EQ(total_of({{10, 20}, {20, 30}, {40, 50}}), 30);
  EXPECT_EQ(total_of({{40, 50}, {60, 70}, {80, 90}, {0, 100}}), 100) << "all of them are inside the last";
  EXPECT_EQ(total_of({{40, 50}, {60, 70}, {80, 90}, {45, 90}}), 50);
  EXPECT_EQ(total_of({{10, 10}, {20, 15}}), 0);
}

// The reference marks each unit of time that an interval covers.
TEST(IntervalUnion, EqualsTheReferenceForTheStoredIntervalsAndIsNeverMore) {
  std::mt19937 generator(1);
  const auto random = [&](Nanos below) {
    return std::uniform_int_distribution<Nanos>(0, below - 1)(generator);
  };
  for (int round = 0; round < 1000; ++round) {
    const auto count = static_cast<size_t>(1 + random(3 * Nanos{IntervalUnion::kIntervals}));
    IntervalUnion time;
    std::vector<bool> covered(count * 60);
    Nanos end = 0;
    for (size_t i = 0; i < count; ++i) {
      end += random(60);
      const Nanos begin = std::max<Nanos>(end - random(random(4) == 0 ? 400 : 30), 0);
      time.add(begin, end);
      std::fill(covered.begin() + begin, covered.begin() + end, true);
    }
    const Nanos reference = std::count(covered.begin(), covered.end(), true);
    EXPECT_LE(time.total(), reference);
    if (count <= IntervalUnion::kIntervals) {
      EXPECT_EQ(time.total(), reference);
    }
  }
}

TEST(IntervalUnion, DropsTheOldestIntervals) {
  IntervalUnion time;
  constexpr Nanos kMany = 3 * Nanos{IntervalUnion::kIntervals};
  for (Nanos i = 0; i < kMany; ++i) time.add(10 * i, 10 * i + 1);
  EXPECT_EQ(time.total(), kMany);
  time.add(0, 10 * kMany);  // reaches back past the stored ones
  EXPECT_LT(time.total(), 10 * kMany);
  EXPECT_GE(time.total(), 10 * Nanos{IntervalUnion::kIntervals} + kMany - Nanos{IntervalUnion::kIntervals});
}

TEST(StragglerStats, MeasuresThePerRankUnionAndIgnoresUnknownRanks) {
  StragglerStats s(3, 0);
  EXPECT_EQ(s.slowest().waited, 0);
  s.note({.last_rank = 2, .lag_us = 5}, 100 * kMicrosecond);
  s.note({.last_rank = 1, .lag_us = 7}, 100 * kMicrosecond);
  EXPECT_EQ(s.slowest().rank, 1u);
  s.note({.last_rank = 2, .lag_us = 4}, 110 * kMicrosecond);
  s.note({.last_rank = 3, .lag_us = 1000}, 110 * kMicrosecond);
  EXPECT_EQ(s.slowest().rank, 2u);
  EXPECT_EQ(s.slowest().waited, 9 * kMicrosecond);
}

// 20 chunks wait for a rank at the same time, for 2 s.
TEST(StragglerStats, CountsConcurrentWaitsOnce) {
  StragglerStats s(2, kSecond);
  for (uint32_t i = 0; i < 20; ++i) {
    s.note({.last_rank = 1, .lag_us = 1'999'000 + i % 3 * 500}, 4 * kSecond);
    s.note({.last_rank = 1, .lag_us = 2'000'000 + i * 1000}, 4 * kSecond + i * kMillisecond);
  }
  EXPECT_EQ(s.slowest().waited, 2 * kSecond + 19 * kMillisecond);
}

TEST(StragglerStats, CountsTheLongestWaitThatEndsInATurn) {
  StragglerStats s(2, 0);
  for (const uint32_t lag_us : {3u, 8u, 5u}) s.note({.last_rank = 1, .lag_us = lag_us}, 100 * kMicrosecond);
  EXPECT_EQ(s.slowest().waited, 8 * kMicrosecond);
}

TEST(StragglerStats, WaitsAtMostSinceItsBegin) {
  StragglerStats s(2, 10 * kSecond);
  s.note({.last_rank = 1, .lag_us = UINT32_MAX}, 12 * kSecond);
  EXPECT_EQ(s.slowest().waited, 2 * kSecond);
}

TEST(StragglerStats, SumsTheWaitsOfEachChunk) {
  StragglerStats stats(3, 0);
  stats.note({.last_rank = 1, .lag_us = 400}, 1000 * kMicrosecond);
  stats.note({.last_rank = 1, .lag_us = 300}, 1000 * kMicrosecond);
  stats.note({.last_rank = 2, .lag_us = 100}, 1100 * kMicrosecond);
  stats.note({.last_rank = 3, .lag_us = 100}, 1100 * kMicrosecond);
  EXPECT_EQ(stats.waits_for(1).rank_us, 700u);
  EXPECT_EQ(stats.waits_for(0).rank_us, 0u);
  EXPECT_EQ(stats.waits_for(2).all_us, 800u) << "without the rank that does not exist";
}

}  // namespace
}  // namespace sluice::engine
