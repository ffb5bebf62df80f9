// Runs one rank of `sluice bench replay`, which replays the allreduces of training steps from a trace. No
// computation runs: a rank waits until the time at which a bucket is ready and starts its allreduce.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/worker/worker_session.h"
#include "bench/traces/trace.h"
#include "core/units.h"
#include "wire/dtype.h"

namespace sluice::bench {

struct ReplayOptions {
  std::string name;  // model or trace file
  Trace trace;       // identical on all ranks
  wire::DType dtype = wire::DType::kF32;
  uint32_t iterations = 10;  // timed steps
  uint32_t warmup = 1;
  uint64_t buffer_limit = kGiB;
  std::string json;  // files that rank 0 writes; empty: none
  std::string csv;
  std::vector<std::string> arguments;  // command line, for the JSON file
};

// Returns kExitOk, or kExitCheckFailed when a sum was wrong on any rank. Throws Failure.
[[nodiscard]] int run_replay(const ReplayOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
