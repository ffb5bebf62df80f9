#include "core/link_split.h"

#include <algorithm>
#include <cstddef>

#include "core/assert.h"

namespace sluice {
namespace {

// A pool whose rate falls short of all workers' by no more than this counts as full: rounding of the rates
// must not open a share of 1e-16 at each worker.
constexpr double kRounding = 1e-9;

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum;
}

// What co-located reducers can sum within the time at which the split is best. A share of the data is
// `spare[w] / unit` at most.
struct WorkerCapacity {
  std::vector<double> spare;  // per rank; 0 without a co-located reducer
  double total = 0;
};

WorkerCapacity capacity_of(const LinkRates& rates, double time) {
  WorkerCapacity c{.spare = std::vector<double>(rates.workers.size(), 0)};
  for (size_t w = 0; w < rates.can_reduce.size(); ++w) {
    if (!rates.can_reduce[w]) continue;
    // With two workers a share costs no bandwidth, so that both are as good.
    c.spare[w] = rates.workers.size() <= 2 ? 1 : std::max(0.0, time * rates.workers[w] - 1);
    c.total += c.spare[w];
  }
  return c;
}

}  // namespace

LinkSplit split_links(const LinkRates& rates) {
  const size_t n = rates.workers.size();
  const auto ranks = static_cast<double>(n);
  SLUICE_ASSERT(n > 0 && (rates.can_reduce.empty() || rates.can_reduce.size() == n));
  const double slowest = std::ranges::min(rates.workers);
  const double pool = sum_of(rates.reducers);
  double co_located = 0;       // number of co-located reducers
  double co_located_rate = 0;  // sum of their rates
  for (size_t w = 0; w < rates.can_reduce.size(); ++w) {
    if (!rates.can_reduce[w]) continue;
    co_located += 1;
    co_located_rate += rates.workers[w];
  }
  SLUICE_ASSERT(slowest > 0 && (pool > 0 || co_located > 0));

  LinkSplit split{.worker_shares = std::vector<double>(n, 0),
                  .reducer_shares = std::vector<double>(rates.reducers.size(), 0)};
  if (n == 1 && co_located > 0) {
    split.worker_shares[0] = 1;
    return split;
  }
  const double least_time = 1 / slowest;  // each worker moves its own data, whatever the shares
  const bool is_full = pool >= ranks * slowest * (1 - kRounding);
  WorkerCapacity capacity;
  if (!is_full && co_located > 0) {
    // At the best time t the shares that fit add up to 1:
    //   sum over co-located (t B - 1) / (n - 2)  +  t pool / n  =  1.  For n = 2 any share fits.
    const double filled =
        n == 2 ? 0 : (ranks - 2 + co_located) / (co_located_rate + (ranks - 2) / ranks * pool);
    split.time = std::max(least_time, filled);
    capacity = capacity_of(rates, split.time);
  }
  if (capacity.total <= 0) {  // dedicated reducers sum everything
    split.time = std::max(least_time, ranks / pool);
    for (size_t r = 0; r < rates.reducers.size(); ++r) split.reducer_shares[r] = rates.reducers[r] / pool;
    return split;
  }
  const double pool_share = std::min(1.0, split.time * pool / ranks);
  for (size_t r = 0; r < rates.reducers.size(); ++r)
    split.reducer_shares[r] = pool_share * (rates.reducers[r] / pool);
  for (size_t w = 0; w < n; ++w)
    split.worker_shares[w] = (1 - pool_share) * (capacity.spare[w] / capacity.total);
  return split;
}

}  // namespace sluice
