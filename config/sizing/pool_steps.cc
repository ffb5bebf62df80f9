#include "config/sizing/pool_steps.h"

#include <algorithm>
#include <set>

#include "config/sizing/model.h"

namespace sluice::config {
namespace {

constexpr uint64_t kMostSteps = 32;
// A gain below this is rounding.
constexpr double kNoGain = 1e-12;

double coverage_of(const PoolStepInput& in, uint64_t reducers) {
  return coverage(in.workers, 1, reducers, in.reducer_rate);
}

// Time over that of a ring.
double relative_time(const PoolStepInput& in, uint64_t reducers) {
  return split_time(in.workers, in.slowest, coverage_of(in, reducers), true).time * in.slowest /
         ring_traffic(in.workers);
}

std::optional<double> extra_of(const PoolStepInput& in) {
  if (!in.usd || !in.workers_usd || *in.workers_usd <= 0) return std::nullopt;
  return *in.usd / *in.workers_usd;
}

std::optional<double> pays_from(const PoolStepInput& in, uint64_t reducers) {
  const std::optional<double> e = extra_of(in);
  if (!e || reducers == 0) return std::nullopt;
  const auto k = static_cast<double>(reducers);
  const double before = relative_time(in, reducers - 1);
  const double after = relative_time(in, reducers);
  if (before - after < kNoGain) return std::nullopt;
  // Solves (1 + k e) (1 - f + f after) = (1 + (k - 1) e) (1 - f + f before) for f.
  const double share = *e / (*e + (1 + (k - 1) * *e) * before - (1 + k * *e) * after);
  if (share < 0 || share > 1) return std::nullopt;
  return share;
}

bool pays(const PoolStepInput& in, uint64_t reducers) {
  const auto from = pays_from(in, reducers);
  return from && *from <= in.exposed_share;
}

std::optional<uint64_t> paying_reducers(const PoolStepInput& in) {
  if (!extra_of(in)) return std::nullopt;
  uint64_t paying = 0;
  uint64_t beyond = in.full + 1;  // does not pay
  while (beyond - paying > 1) {
    const uint64_t middle = paying + (beyond - paying) / 2;
    (pays(in, middle) ? paying : beyond) = middle;
  }
  return paying;
}

PoolStep step_of(const PoolStepInput& in, uint64_t reducers) {
  const double covered = coverage_of(in, reducers);
  const SplitTime split = split_time(in.workers, in.slowest, covered, true);
  PoolStep step;
  step.reducers = reducers;
  step.time = split.time;
  step.co_located_share = split.co_located_share;
  if (reducers > 0) step.pool_alone = split_time(in.workers, in.slowest, covered, false).time;
  step.speedup = ring_traffic(in.workers) / in.slowest / split.time;
  if (in.usd) step.usd_per_hour = *in.usd * static_cast<double>(reducers);
  if (const auto e = extra_of(in)) step.extra = *e * static_cast<double>(reducers);
  step.pays_from = pays_from(in, reducers);
  return step;
}

}  // namespace

PoolSteps pool_steps(const PoolStepInput& in) {
  PoolSteps out{.steps = {}, .paying = paying_reducers(in)};
  std::set<uint64_t> sizes = {in.chosen, in.full};
  if (out.paying) sizes.insert({*out.paying, std::min(*out.paying + 1, in.full)});
  const uint64_t count = std::min(in.full, kMostSteps);
  for (uint64_t i = 0; i <= count; ++i) sizes.insert(in.full * i / count);
  for (const uint64_t reducers : sizes) out.steps.push_back(step_of(in, reducers));
  return out;
}

}  // namespace sluice::config
