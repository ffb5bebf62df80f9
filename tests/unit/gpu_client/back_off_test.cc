#include "gpu_client/engine/recovery/back_off.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::engine {
namespace {

TEST(BackOff, DoublesUpToTheLongestAndShortensByAtMostHalf) {
  BackOff pauses(10, 45, 1);
  for (const Nanos whole : {10, 20, 40, 45, 45}) {
    const Nanos pause = pauses.next();
    EXPECT_LE(pause, whole);
    EXPECT_GE(pause, whole - whole / 2);
  }
  pauses.reset();
  EXPECT_LE(pauses.next(), 10);
}

// Ranks that failed together spread over half of each pause.
TEST(BackOff, DiffersFromSeedToSeed) {
  constexpr Nanos kWhole = 1000;
  std::set<Nanos> seen;
  Nanos least = kWhole;
  Nanos most = 0;
  for (uint32_t seed = 1; seed <= 64; ++seed) {
    const Nanos pause = BackOff(kWhole, kWhole, seed * 7919).next();
    seen.insert(pause);
    least = std::min(least, pause);
    most = std::max(most, pause);
  }
  EXPECT_GT(seen.size(), 48u);
  EXPECT_LT(least, 600);
  EXPECT_GT(most, 900);
}

}  // namespace
}  // namespace sluice::engine
