// Runs `sluice bench star`: compares the CPU time of a reducer with that of a bare TCP star that moves the
// same bytes. The unit is CPU seconds of the server process per 1e9 bytes received. Both servers run during
// the whole benchmark and alternate round by round with the same workers.
#pragma once

#include <cstdint>
#include <string>

#include "bench/e2e/worker/worker_session.h"
#include "core/units.h"

namespace sluice::bench {

struct StarBenchOptions {
  uint32_t workers = 4;
  uint64_t bytes = 64 * kMiB;  // per worker and round; a multiple of chunk_bytes
  uint64_t chunk_bytes = 256 * kKiB;
  uint64_t window_bytes = 2 * kMiB;
  uint32_t rounds = 5;
  uint32_t progress_threads = 1;
  bool payload_crc = true;
  bool health = false;   // the reducer scans contributions
  double max_ratio = 0;  // above this ratio of reducer to star the result is kExitCheckFailed; 0: no limit
  std::string json;      // output files; empty: none
  std::string csv;
};

// Returns the exit code; kExitCheckFailed also means that a sum was wrong. Throws Failure.
[[nodiscard]] int run_star_bench(const StarBenchOptions& options);

struct StarWorkerOptions {
  uint16_t star_port = 0;
  uint64_t bytes = 0;  // per round
  uint64_t chunk_bytes = 0;
  uint64_t window_bytes = 0;
};

// Runs a worker, which has a connection to the bare star and a session with the reducer. Prints "ready" when
// both are established, and answers each command on stdin with a line on stdout. Returns at the end of stdin.
[[nodiscard]] int run_star_worker(const StarWorkerOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
