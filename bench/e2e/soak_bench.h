// `sluice bench soak`: random operations for a long time, every result of them checked. One rank's part. In
// rounds: some operations are filled, opened at once, waited for and checked, then all ranks agree whether to
// go on, so that any one of them can end the run in order, as SIGINT and SIGTERM do.
#pragma once

#include <cstdint>
#include <string>

#include "bench/e2e/quantiles.h"
#include "bench/e2e/worker_session.h"
#include "core/units.h"

namespace sluice::bench {

struct SoakOptions {
  Nanos duration = 600 * kSecond;  // rank 0's counts; 0: until interrupted
  Nanos interval = 10 * kSecond;   // between progress lines
  uint64_t seed = 0;               // rank 0's counts; 0: a random one
  uint64_t max_bytes = 8 * kMiB;   // of one operation
  uint32_t open = 4;               // operations at once, at most
  uint64_t max_growth = 0;         // fail above it; 0: don't
  std::string json;                // files of rank 0; empty: none
  std::string csv;
};

// Of a stretch of time, or of the whole run. Counts are of all ranks together where it says so.
struct SoakProgress {
  Nanos elapsed = 0;        // since the run began
  uint64_t operations = 0;  // since the run began; of each rank
  uint64_t bytes = 0;       // reduced by them, of each rank
  uint64_t wrong = 0;       // elements, of all ranks
  Quantiles times = {};     // rank 0's, seconds from an operation's start to its end; of the stretch
  Nanos longest_round = 0;  // rank 0's, filling, checking and agreeing to go on included; of the stretch
  uint64_t resident = 0;    // RSS of rank 0, bytes
};

struct SoakEnd {
  SoakProgress total;
  bool interrupted = false;
  uint64_t resident_early = 0;  // RSS of rank 0 after the first tenth of the run
  uint64_t most_growth = 0;     // from there to the end, of the rank that grew most
};

// Failure(kExitUsage) when they make no sense.
void check(const SoakOptions& options);

// Returns kExitOk, or kExitWrongData when a result was wrong or a rank grew by more than max_growth. Throws
// Failure.
[[nodiscard]] int run_soak(const SoakOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
