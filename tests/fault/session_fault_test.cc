// Whatever happens on the way, an operation ends on every rank, and what ends well is right. A healthy
// session runs beside each.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/instrumented.h"
#include "tests/fault/fault_world.h"

namespace sluice::test {
namespace {

using transport::fault::FaultKind;
using transport::fault::FaultRule;

#if SLUICE_INSTRUMENTED
constexpr uint64_t kSeeds = 6;
#else
constexpr uint64_t kSeeds = 25;
#endif

WorldOptions seeded(uint64_t seed) {
  return {.ranks = 2 + static_cast<uint32_t>(seed % 4),
          .reducers = 1 + static_cast<uint32_t>(seed % 3),
          .slots = 2 + static_cast<uint32_t>(seed % 3),
          .seed = seed,
          .worker_faults = {},
          .reducer_faults = {}};
}

void expect_healthy_neighbour(uint64_t seed) {
  FaultWorld world(seeded(seed));
  ASSERT_TRUE(world.run());
  EXPECT_EQ(world.outcome().failed + world.outcome().wrong, 0u);
}

TEST(SessionFaults, WithoutFaultsEverySumIsRight) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) expect_healthy_neighbour(seed);
}

TEST(SessionFaults, DelaysAndStallsCostTimeNotSums) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    WorldOptions options = seeded(seed);
    options.worker_faults = {
        FaultRule{.kind = FaultKind::kDelay, .probability = 0.2, .duration = 3 * kMillisecond}};
    options.reducer_faults = {
        FaultRule{.kind = FaultKind::kStall, .probability = 0.1, .duration = 5 * kMillisecond}};
    FaultWorld world(options);
    ASSERT_TRUE(world.run()) << "seed " << seed;
    const auto o = world.outcome();
    EXPECT_EQ(o.wrong + o.failed, 0u) << "seed " << seed;
    EXPECT_EQ(o.right, options.operations * options.ranks);
    EXPECT_GT(world.faults().delays, 0u);
  }
}

class Breaks : public ::testing::TestWithParam<FaultKind> {};

TEST_P(Breaks, EndEveryOperationAndLeaveNoWrongSum) {
  uint64_t hit = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool at_worker : {true, false}) {
      WorldOptions options = seeded(seed);
      const FaultRule rule{.kind = GetParam(),
                           .endpoint = static_cast<uint32_t>(seed % options.reducers),
                           .nth = 1 + seed % 12};
      (at_worker ? options.worker_faults : options.reducer_faults) = {rule};
      FaultWorld world(options);
      ASSERT_TRUE(world.run()) << "an operation never ended; seed " << seed
                               << (at_worker ? " worker" : " reducer");
      const auto o = world.outcome();
      EXPECT_EQ(o.wrong, 0u) << "seed " << seed;
      EXPECT_EQ(o.right + o.failed, options.operations * options.ranks);
      const auto f = world.faults();
      const bool struck = f.drops + f.resets + f.corruptions > 0;
      hit += struck;
      if (struck && o.failed > 0) {
        EXPECT_TRUE(std::ranges::any_of(world.reasons(), [](Errc e) { return e != Errc::kOk; }));
      }
    }
    expect_healthy_neighbour(seed);
  }
  EXPECT_GT(hit, kSeeds) << "the plan hardly ever struck: the test tests nothing";
}

INSTANTIATE_TEST_SUITE_P(Kinds, Breaks,
                         ::testing::Values(FaultKind::kDrop, FaultKind::kReset, FaultKind::kCorrupt),
                         [](const auto& tested) {
                           return tested.param == FaultKind::kDrop    ? "drop"
                                  : tested.param == FaultKind::kReset ? "reset"
                                                                      : "corrupt";
                         });

}  // namespace
}  // namespace sluice::test
