#include "bench/e2e/report/quantiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace sluice::bench {
namespace {

// Returns 1, 2, ..., n in random order; the k-th smallest value is k.
std::vector<double> up_to(size_t n) {
  std::vector<double> samples(n);
  std::iota(samples.begin(), samples.end(), 1.0);
  std::shuffle(samples.begin(), samples.end(), std::mt19937(7));
  return samples;
}

TEST(Quantiles, UseTheNearestRank) {
  struct Case {
    size_t n;
    double median, p99, p999;
  };
  for (const Case& c : {Case{1, 1, 1, 1}, Case{2, 1, 2, 2}, Case{5, 3, 5, 5}, Case{99, 50, 99, 99},
                        Case{100, 50, 99, 100}, Case{101, 51, 100, 101}, Case{700, 350, 693, 700},
                        Case{1000, 500, 990, 999}, Case{10000, 5000, 9900, 9990}}) {
    const Quantiles q = quantiles_of(up_to(c.n));
    EXPECT_EQ(q.count, c.n);
    EXPECT_EQ(q.median, c.median) << c.n;
    EXPECT_EQ(q.p99, c.p99) << c.n;
    EXPECT_EQ(q.p999, c.p999) << c.n;
  }
}

TEST(Quantiles, OfNoSamplesAreZero) {
  EXPECT_EQ(quantiles_of({}).count, 0u);
  EXPECT_EQ(median_of({}), 0);
}

}  // namespace
}  // namespace sluice::bench
