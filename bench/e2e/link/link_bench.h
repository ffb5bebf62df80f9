// Runs one rank of `sluice bench link`: measures the bandwidth between each worker and each reducer and finds
// slow hosts.
//
// The pairs are measured one after another. A worker joins a session with one rank at one reducer; an
// allreduce of this session sends all bytes to the reducer and back. The other ranks wait in the common
// session.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/link/link_matrix.h"
#include "bench/e2e/worker/worker_session.h"
#include "core/units.h"

namespace sluice::bench {

struct LinkOptions {
  uint64_t bytes = 16 * kMiB;
  uint32_t iterations = 5;  // of each pair; the report uses the median
  uint32_t warmup = 1;
  double slow = 0.8;       // share of the median below which a link is slow
  bool fail_slow = false;  // a slow link is a failure
  std::string json;        // files that rank 0 writes; empty: none
  std::string csv;
};

struct LinkResults {
  LinkMatrix pairs;
  std::vector<double> alone;  // GB/s of each worker with all reducers, while the others wait
  double concurrent = 0;      // GB/s of each worker with all reducers, all workers at once
  uint64_t wrong = 0;         // wrong elements
};

// Throws Failure(kExitUsage) when the options are invalid.
void check(const LinkOptions& options);

// Returns kExitOk, or kExitCheckFailed when a result was wrong or, with fail_slow, a link was slow. Throws
// Failure.
[[nodiscard]] int run_link(const LinkOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
