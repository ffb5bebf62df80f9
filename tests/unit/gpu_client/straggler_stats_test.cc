#include "gpu_client/engine/data_path/straggler_stats.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

TEST(StragglerStats, SumsLagPerRankAndIgnoresUnknownRanks) {
  StragglerStats s(3);
  EXPECT_EQ(s.slowest().lag_us, 0u);
  s.note({.last_rank = 2, .lag_us = 5});
  s.note({.last_rank = 1, .lag_us = 7});
  s.note({.last_rank = 2, .lag_us = 4});
  s.note({.last_rank = 3, .lag_us = 1000});
  EXPECT_EQ(s.slowest().rank, 2u);
  EXPECT_EQ(s.slowest().lag_us, 9u);
}

}  // namespace
}  // namespace sluice::engine
