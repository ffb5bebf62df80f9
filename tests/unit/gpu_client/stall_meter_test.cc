#include "gpu_client/engine/data_path/stall_meter.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

TEST(StallMeter, CountsAStallInProgressUpToNow) {
  StallMeter m;
  EXPECT_EQ(m.longest(0, true, 50), 0);
  m.note(3, true, 100);
  EXPECT_EQ(m.longest(3, true, 130), 30) << "the loop has not run since";
  EXPECT_EQ(m.longest(4, true, 130), 0) << "chunk 3 has a result, and the loop had no idle turn since";
  EXPECT_EQ(m.longest(3, false, 130), 0) << "no operation is open";
  m.note(3, true, 140);
  EXPECT_EQ(m.longest(3, false, 150), 40);
}

TEST(StallMeter, EndsAStallWhenTheOldestChunkHasAResult) {
  StallMeter m;
  m.note(3, true, 100);
  m.note(3, true, 170);
  m.note(4, true, 180);
  EXPECT_EQ(m.longest(4, true, 200), 70);
  m.note(4, true, 260);
  EXPECT_EQ(m.longest(4, true, 260), 80);
}

TEST(StallMeter, ExtendsOnlyAStallInProgress) {
  StallMeter m;
  m.note(3, true, 100);
  EXPECT_TRUE(m.extend(3, true, 120));
  EXPECT_FALSE(m.extend(4, true, 200));
  EXPECT_FALSE(m.extend(3, false, 200)) << "the operation has failed";
  EXPECT_EQ(m.longest(4, true, 300), 20);
}

// Operations that overlap wait in one stall: 70 and not the sum of their waits.
TEST(StallMeter, DoesNotAddConcurrentWaits) {
  StallMeter m;
  for (Nanos now = 100; now <= 170; now += 10) m.note(3, true, now);
  EXPECT_EQ(m.longest(5, true, 170), 70);
}

TEST(StallMeter, DoesNotCountTimeWithoutAnOperation) {
  StallMeter m;
  m.note(3, false, 100);
  EXPECT_FALSE(m.extend(3, true, 400));
  m.note(3, true, 500);
  m.note(3, true, 510);
  m.note(4, false, 520);
  m.note(4, true, 900);
  m.note(4, true, 905);
  EXPECT_EQ(m.longest(4, true, 905), 10);
}

}  // namespace
}  // namespace sluice::engine
