// Function split_links() computes which share of the data each reducer of a session sums, so that the slowest
// link finishes as early as possible.
//
// With n workers and 1 unit of data, a member with share x of the data moves in each direction
//   as a worker               1 + (n - 2) x   its own contribution and the results, minus its own share,
//   which
//                                             stays in memory, plus n - 1 ranks' contributions to its share
//   as a dedicated reducer    n x
// A worker without a co-located reducer has x = 0. The time of a split is the largest load over rate, and the
// function returns a split with the smallest time. Among those it prefers dedicated reducers: a co-located
// reducer gets a share only where that saves time. For n = 2 the worker's load is 1 whatever its share, and a
// single worker with a co-located reducer needs no link, so that its time is 0.
//
// Pure function: thread-safe, deterministic to the last bit (only + - * / on doubles), so that all ranks
// compute the same shares from the same rates.
#pragma once

#include <vector>

namespace sluice {

// All rates are positive and finite, in one unit. At least one reducer of either kind must exist.
struct LinkRates {
  std::vector<double> workers;     // of each rank, in each direction
  std::vector<bool> can_reduce;    // per rank: has a co-located reducer; empty: none has
  std::vector<double> reducers{};  // of the dedicated reducers
};

struct LinkSplit {
  double time = 0;                    // for 1 unit of data: multiply by the size of the data
  std::vector<double> worker_shares;  // one per rank. All shares of both lists add up to 1
  std::vector<double> reducer_shares;
};

// Precondition violations are programming errors and end the process. A caller checks a peer's rates first.
[[nodiscard]] LinkSplit split_links(const LinkRates& rates);

}  // namespace sluice
