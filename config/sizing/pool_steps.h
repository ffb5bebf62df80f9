// Computes what each further reducer brings beside co-located ones, for `sluice plan`: from no reducer to a
// pool that covers the workers. Pure functions: thread-safe, no errors; the caller checks the ranges.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::config {

struct PoolStepInput {
  uint64_t workers = 0;       // at least 2
  double slowest = 1;         // bandwidth of the slowest worker, as a share of the others'
  double reducer_rate = 1;    // bandwidth of a reducer over that of a worker
  uint64_t full = 0;          // reducers that cover the workers
  uint64_t chosen = 0;        // a pool size to include
  double exposed_share = 0;   // share of a step that is exposed communication with a ring
  std::optional<double> usd;  // per hour, of one reducer
  std::optional<double> workers_usd;
};

struct PoolStep {
  uint64_t reducers = 0;
  double time = 0;              // of an allreduce, in multiples of S / Bw
  double pool_alone = 0;        // the same without co-located reducers; 0: there is no reducer
  double speedup = 0;           // over a ring of nodes
  double co_located_share = 0;  // of S
  std::optional<double> usd_per_hour;
  std::optional<double> extra;  // share of the workers' cost
  // The share of a step that must be exposed communication so that the last of these reducers lowers the
  // cost of a step. Empty: a price is unknown, never, or no reducer.
  std::optional<double> pays_from;
};

struct PoolSteps {
  std::vector<PoolStep>
      steps;  // ascending; all pool sizes, or about 33 of them; `chosen` and `paying` included
  // The largest pool whose last reducer pays_from at most exposed_share. Empty: a price is unknown.
  std::optional<uint64_t> paying;
};

// With a share f of exposed communication, K reducers shorten a step to (1 - f) + f / speedup(K) and raise
// its price per hour to 1 + K e, where e is the price of a reducer over that of all workers. The gain of a
// further reducer decreases with K, so that reducers pay up to one K and not beyond.
[[nodiscard]] PoolSteps pool_steps(const PoolStepInput& input);

}  // namespace sluice::config
