// `sluice bench link`: how fast each worker reaches each reducer, both ways at once, and which host is the
// slow one. One rank's part. The pairs are measured one after another: a worker makes a session of itself
// alone with that one reducer, whose allreduce sends all bytes up and the same down, while the other ranks
// wait for it in the session of all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/link_matrix.h"
#include "bench/e2e/worker_session.h"
#include "core/units.h"

namespace sluice::bench {

struct LinkOptions {
  uint64_t bytes = 16 * kMiB;
  uint32_t iterations = 5;  // of each pair; their median counts
  uint32_t warmup = 1;
  double slow = 0.8;  // of the median
  bool fail_slow = false;
  std::string json;  // files of rank 0; empty: none
  std::string csv;
};

struct LinkResults {
  LinkMatrix pairs;
  std::vector<double> alone;  // GB/s of each worker with all reducers, while the others wait
  double together = 0;        // GB/s of each worker with all reducers, all workers at once
  uint64_t wrong = 0;         // elements
};

// Failure(kExitUsage) when they make no sense.
void check(const LinkOptions& options);

// Returns kExitOk, or kExitWrongData when a result was wrong, or a link slow and fail_slow set. Throws
// Failure.
[[nodiscard]] int run_link(const LinkOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
