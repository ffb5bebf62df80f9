// Struct Quantiles holds the count, median and tail of a set of samples. Quantiles use the nearest rank, so
// each is a measured value: the p-quantile of n samples is the ceil(p n)-th smallest. The median of an even
// number of samples is the lower one of the middle two. The p99 of fewer than 100 samples and the p99.9 of
// fewer than 1000 are the maximum.
#pragma once

#include <cstddef>
#include <vector>

namespace sluice::bench {

struct Quantiles {
  size_t count = 0;  // number of samples; with 0 the quantiles are undefined
  double median = 0;
  double p99 = 0;
  double p999 = 0;
};

[[nodiscard]] Quantiles quantiles_of(std::vector<double> samples);

[[nodiscard]] inline double median_of(std::vector<double> samples) {
  return quantiles_of(std::move(samples)).median;
}

}  // namespace sluice::bench
