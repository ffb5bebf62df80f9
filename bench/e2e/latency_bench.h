// `sluice bench latency`: how long one small allreduce takes, by size: median, p99 and p99.9. One rank's
// part; all ranks run the same sequence, each operation alone. Every rank begins an operation when it has the
// result of the one before, so they go in step by the operations themselves, and rank 0's times are the times
// of all. Beside them, of the same run and bytes, a bare TCP star's (star_server.h), the floor: batch by
// batch in turns, so that what disturbs the machine disturbs both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/e2e/quantiles.h"
#include "bench/e2e/worker_session.h"
#include "core/units.h"

namespace sluice::bench {

struct LatencyOptions {
  uint64_t min_bytes = 8;          // -b
  uint64_t max_bytes = 64 * kKiB;  // -e
  uint64_t step_factor = 2;        // -f
  uint32_t iterations = 2000;      // -n: of each kind and size
  uint32_t warmup = 20;            // -w: untimed operations that each batch begins with
  uint32_t batch = 100;            // operations of one kind in a row; the last one's result is checked
  std::string star;                // "host:port" of a star server; empty: no star
  std::string json;                // files of rank 0; empty: none
  std::string csv;
};

struct LatencyRow {
  uint64_t bytes = 0;
  Quantiles sluice = {};  // seconds
  std::optional<Quantiles> star = {};
  uint64_t checked = 0;  // results that were looked at, over all ranks
  uint64_t wrong = 0;    // elements of them
};

// Failure(kExitUsage) when they make no sense.
void check(const LatencyOptions& options);

// Returns kExitOk, or kExitWrongData when a result was wrong on any rank. Throws Failure.
[[nodiscard]] int run_latency(const LatencyOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
