// What a number of timings say: median and tail, and of how many. By nearest rank, so every figure is one
// that was measured: the p-quantile of n samples is the ceil(p n)-th smallest. The median of an even number
// is the lower of the two in the middle; the p99 of fewer than 100 samples, and the p99.9 of fewer than 1000,
// is the greatest.
#pragma once

#include <cstddef>
#include <vector>

namespace sluice::bench {

struct Quantiles {
  size_t count = 0;  // of samples; 0: the others mean nothing
  double median = 0;
  double p99 = 0;
  double p999 = 0;
};

[[nodiscard]] Quantiles quantiles_of(std::vector<double> samples);

[[nodiscard]] inline double median_of(std::vector<double> samples) {
  return quantiles_of(std::move(samples)).median;
}

}  // namespace sluice::bench
