// Counts heap allocations of the data path.
#include <gtest/gtest.h>

#include "tests/support/allocation_counter.h"
#include "tests/unit/gpu_client/scheduler_test_bed.h"

namespace sluice::engine::test {
namespace {

TEST(Allocations, AreNoneInSteadyState) {
  SchedulerTestBed t({.lanes = 3, .slots = 4});
  std::vector<std::byte> data(500'000);
  const auto round = [&](uint64_t count) {
    for (int i = 0; i < 8; ++i) t.start(data.data(), data.data(), count);
    t.settle_answering();
    for (uint32_t i = 0; i < OpTable::kCapacity; ++i) {
      if (t.ended(i)) t.table.release(i);
    }
  };
  round(data.size());
  const uint64_t frames_before = t.scheduler->counters().lanes.frames_out;
  const uint64_t before = sluice::test::allocations();
  for (int i = 0; i < 20; ++i) round(static_cast<uint64_t>(1 + i * 20'011));
  const uint64_t frames = t.scheduler->counters().lanes.frames_out - frames_before;
  EXPECT_GT(frames, 1000u);
  EXPECT_EQ(sluice::test::allocations() - before, 0u) << "in " << frames << " frames";
}

}  // namespace
}  // namespace sluice::engine::test
