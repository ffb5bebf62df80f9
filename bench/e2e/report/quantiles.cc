#include "bench/e2e/report/quantiles.h"

#include <algorithm>

#include "core/units.h"

namespace sluice::bench {

Quantiles quantiles_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  // Integer arithmetic, because 0.99 * n in floating point may exceed the exact integer.
  const auto at = [&samples](size_t per_mille) {
    return samples[div_ceil(per_mille * samples.size(), 1000) - 1];
  };
  return {.count = samples.size(), .median = at(500), .p99 = at(990), .p999 = at(999)};
}

}  // namespace sluice::bench
