#include "nccl_plugin/collnet/latency_histogram.h"

#include <gtest/gtest.h>

namespace sluice::nccl::collnet {
namespace {

TEST(LatencyHistogram, ReturnsMeanAndQuantilesWithinABucket) {
  LatencyHistogram l;
  for (int i = 1; i <= 1000; ++i) l.add(i * kMicrosecond);
  EXPECT_EQ(l.count(), 1000U);
  EXPECT_NEAR(l.mean_us(), 500.5, 0.1);
  EXPECT_GE(l.quantile_us(0.5), 500);
  EXPECT_LE(l.quantile_us(0.5), 500 * 1.26);
  EXPECT_GE(l.quantile_us(0.99), 990);
  EXPECT_LE(l.quantile_us(0.99), 990 * 1.26);
}

TEST(LatencyHistogram, AcceptsAnyDuration) {
  LatencyHistogram l;
  EXPECT_EQ(l.quantile_us(0.99), 0);
  for (const Nanos t : {Nanos{-5}, Nanos{0}, Nanos{1}, Nanos{INT64_MAX}}) l.add(t);
  EXPECT_EQ(l.count(), 4U);
  EXPECT_GT(l.quantile_us(0.99), 1e9);
}

}  // namespace
}  // namespace sluice::nccl::collnet
