#include "config/sizing/model.h"

#include <algorithm>
#include <cmath>

#include "core/link_split.h"

namespace sluice::config {
namespace {

uint64_t ceiling(double value) noexcept {
  return static_cast<uint64_t>(std::max(1.0, std::ceil(value * (1 - kRounding))));
}

}  // namespace

uint64_t reducers_for(uint64_t workers, double worker_gbps, double reducer_gbps, double headroom) noexcept {
  return ceiling(static_cast<double>(workers) * worker_gbps / (headroom * reducer_gbps));
}

double coverage(uint64_t workers, double worker_gbps, uint64_t reducers, double reducer_gbps) noexcept {
  return static_cast<double>(reducers) * reducer_gbps / (static_cast<double>(workers) * worker_gbps);
}

SplitTime split_time(uint64_t workers, double slowest, double coverage, bool co_located) {
  LinkRates rates{.workers = std::vector<double>(workers, 1),
                  .can_reduce = std::vector<bool>(workers, co_located)};
  rates.workers.front() = slowest;
  // One reducer stands for all of them: equal reducers get equal shares.
  if (coverage > 0) rates.reducers = {coverage * static_cast<double>(workers)};
  const LinkSplit split = split_links(rates);
  SplitTime out{.time = split.time};
  for (const double x : split.worker_shares) out.co_located_share += x;
  return out;
}

double ring_traffic(uint64_t members) noexcept {
  const auto m = static_cast<double>(members);
  return 2 * (m - 1) / m;
}

double tree_traffic(uint64_t nodes) noexcept {
  switch (nodes) {
    case 1: return 0;
    case 2: return 1;
    case 3: return 1.5;
    default: return 2;
  }
}

double transfer_seconds(double traffic, uint64_t bytes, double gbps) noexcept {
  return traffic * static_cast<double>(bytes) * 8 / (gbps * 1e9);
}

std::optional<double> break_even_share(double extra, double speedup) noexcept {
  if (speedup <= 1) return std::nullopt;
  const double share = extra / (1 + extra) / (1 - 1 / speedup);
  if (share > 1) return std::nullopt;
  return share;
}

uint64_t flows_for(double pair_gbps, double flow_gbps) noexcept {
  return ceiling(pair_gbps / flow_gbps);
}

double busy_processors(double gbps, double cpu_seconds_per_gb) noexcept {
  return gbps / 8 * cpu_seconds_per_gb;
}

}  // namespace sluice::config
