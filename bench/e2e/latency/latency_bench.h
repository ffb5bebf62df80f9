// Runs one rank of `sluice bench latency`: median, p99 and p99.9 of a small allreduce by size.
//
// All ranks run the same sequence, one operation at a time. A rank starts an operation when it has the result
// of the operation before, so the operations synchronize the ranks. The times of rank 0 therefore represent
// all ranks.
//
// A bare TCP star (star_server.h) moves the same bytes in the same run as the lower bound. Batches of both
// alternate, so that a disturbance of the machine affects both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/e2e/report/quantiles.h"
#include "bench/e2e/worker/worker_session.h"
#include "core/units.h"

namespace sluice::bench {

struct LatencyOptions {
  uint64_t min_bytes = 8;          // -b
  uint64_t max_bytes = 64 * kKiB;  // -e
  uint64_t step_factor = 2;        // -f
  uint32_t iterations = 2000;      // -n: timed operations of sluice and of the star, per size
  uint32_t warmup = 20;            // -w: untimed operations at the start of each batch
  uint32_t batch = 100;            // consecutive operations; the result of the last one is checked
  std::string star;                // "host:port" of a star server; empty: none
  std::string json;                // files that rank 0 writes; empty: none
  std::string csv;
};

struct LatencyRow {
  uint64_t bytes = 0;
  Quantiles sluice = {};  // seconds
  std::optional<Quantiles> star = {};
  uint64_t checked = 0;  // checked results of all ranks
  uint64_t wrong = 0;    // wrong elements in these results
};

// Throws Failure(kExitUsage) when the options are invalid.
void check(const LatencyOptions& options);

// Returns kExitOk, or kExitCheckFailed when a result was wrong on any rank. Throws Failure.
[[nodiscard]] int run_latency(const LatencyOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
