// `sluice bench star`: what a reducer costs above a bare TCP star that moves the same bytes, in CPU seconds
// of the server process per 1e9 bytes it received. Both servers live through the whole run and take turns,
// round by round, with the same workers.
#pragma once

#include <cstdint>
#include <string>

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
  double max_ratio = 0;  // fail (kExitWrongData) above it; 0: don't
  std::string json;      // files; empty: none
  std::string csv;
};

// Returns the exit code; kExitWrongData also when a sum was wrong. Throws Failure.
[[nodiscard]] int run_star_bench(const StarBenchOptions& options);

}  // namespace sluice::bench
