// Whatever happens on the way, an operation ends on every rank, and what ends well is correct. A healthy
// session runs beside each.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/instrumented.h"
#include "tests/fault/fault_test_bed.h"

namespace sluice::test {
namespace {

using transport::fault::FaultKind;
using transport::fault::FaultRule;

#if SLUICE_INSTRUMENTED
constexpr uint64_t kSeeds = 6;
#else
constexpr uint64_t kSeeds = 25;
#endif

FaultTestOptions seeded(uint64_t seed) {
  return {.ranks = 2 + static_cast<uint32_t>(seed % 4),
          .reducers = 1 + static_cast<uint32_t>(seed % 3),
          .slots = 2 + static_cast<uint32_t>(seed % 3),
          .seed = seed,
          .worker_faults = {},
          .reducer_faults = {}};
}

void expect_success_without_faults(uint64_t seed) {
  FaultTestBed test_bed(seeded(seed));
  ASSERT_TRUE(test_bed.run());
  EXPECT_EQ(test_bed.outcome().failed + test_bed.outcome().wrong, 0u);
}

TEST(SessionFaults, WithoutFaultsEverySumIsCorrect) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) expect_success_without_faults(seed);
}

TEST(SessionFaults, DelaysAndStallsDoNotChangeSums) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    FaultTestOptions options = seeded(seed);
    options.worker_faults = {
        FaultRule{.kind = FaultKind::kDelay, .probability = 0.2, .duration = 3 * kMillisecond}};
    options.reducer_faults = {
        FaultRule{.kind = FaultKind::kStall, .probability = 0.1, .duration = 5 * kMillisecond}};
    FaultTestBed test_bed(options);
    ASSERT_TRUE(test_bed.run()) << "seed " << seed;
    const auto o = test_bed.outcome();
    EXPECT_EQ(o.wrong + o.failed, 0u) << "seed " << seed;
    EXPECT_EQ(o.correct, options.operations * options.ranks);
    EXPECT_GT(test_bed.faults().delays, 0u);
  }
}

class BreakingFaultTest : public ::testing::TestWithParam<FaultKind> {};

TEST_P(BreakingFaultTest, EveryOperationEndsAndNoSumIsWrong) {
  uint64_t faults = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool at_worker : {true, false}) {
      FaultTestOptions options = seeded(seed);
      const FaultRule rule{.kind = GetParam(),
                           .endpoint = static_cast<uint32_t>(seed % options.reducers),
                           .nth = 1 + seed % 12};
      (at_worker ? options.worker_faults : options.reducer_faults) = {rule};
      FaultTestBed test_bed(options);
      ASSERT_TRUE(test_bed.run()) << "an operation never ended; seed " << seed
                                  << (at_worker ? " worker" : " reducer");
      const auto o = test_bed.outcome();
      EXPECT_EQ(o.wrong, 0u) << "seed " << seed;
      EXPECT_EQ(o.correct + o.failed, options.operations * options.ranks);
      const auto f = test_bed.faults();
      const bool occurred = f.drops + f.resets + f.corruptions > 0;
      faults += occurred;
      if (occurred && o.failed > 0) {
        EXPECT_TRUE(std::ranges::any_of(test_bed.reasons(), [](Errc e) { return e != Errc::kOk; }));
      }
    }
    expect_success_without_faults(seed);
  }
  EXPECT_GT(faults, kSeeds) << "too few faults occurred for a meaningful test";
}

INSTANTIATE_TEST_SUITE_P(Kinds, BreakingFaultTest,
                         ::testing::Values(FaultKind::kDrop, FaultKind::kReset, FaultKind::kCorrupt),
                         [](const auto& tested) {
                           return tested.param == FaultKind::kDrop    ? "drop"
                                  : tested.param == FaultKind::kReset ? "reset"
                                                                      : "corrupt";
                         });

}  // namespace
}  // namespace sluice::test
