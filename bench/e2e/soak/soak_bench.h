// Runs one rank of `sluice bench soak`: random operations for a long time, with a check of every result.
//
// The run consists of rounds. A round fills the buffers of some operations, starts them concurrently, waits
// for them and checks the results. Then all ranks agree whether to continue, so that a signal to any rank
// ends the run on all ranks in an orderly way.
#pragma once

#include <cstdint>
#include <string>

#include "bench/e2e/report/quantiles.h"
#include "bench/e2e/worker/worker_session.h"
#include "core/units.h"

namespace sluice::bench {

struct SoakOptions {
  Nanos duration = 600 * kSecond;  // the value of rank 0 applies; 0: until interrupted
  Nanos interval = 10 * kSecond;   // between progress lines
  uint64_t seed = 0;               // the value of rank 0 applies; 0: random
  uint64_t max_bytes = 8 * kMiB;   // largest operation
  uint32_t open = 4;               // maximum number of concurrent operations
  uint64_t max_growth = 0;         // limit of the growth of the resident memory; 0: none
  std::string json;                // files that rank 0 writes; empty: none
  std::string csv;
};

// Progress of an interval or of the whole run.
struct SoakProgress {
  Nanos elapsed = 0;        // since the start of the run
  uint64_t operations = 0;  // since the start of the run, per rank
  uint64_t bytes = 0;       // reduced since the start of the run, per rank
  uint64_t wrong = 0;       // wrong elements on all ranks
  Quantiles times = {};     // of the interval on rank 0: seconds from start to completion of an operation
  Nanos longest_round = 0;  // of the interval on rank 0, including fill, check and agreement
  uint64_t resident = 0;    // RSS of rank 0, bytes
};

struct SoakSummary {
  SoakProgress total;
  bool interrupted = false;
  uint64_t resident_early = 0;  // RSS of rank 0 after the first tenth of the run
  uint64_t most_growth = 0;     // growth of the RSS since then, maximum over the ranks
};

// Throws Failure(kExitUsage) when the options are invalid.
void check(const SoakOptions& options);

// Returns kExitOk, or kExitCheckFailed when a result was wrong or the memory of a rank grew by more than
// max_growth. Throws Failure.
[[nodiscard]] int run_soak(const SoakOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
