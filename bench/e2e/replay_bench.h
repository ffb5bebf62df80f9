// `sluice bench replay`: one rank's part in playing the gradients of training steps. The computation is
// nobody's: a rank waits until a bucket would be ready and starts its allreduce.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/worker_session.h"
#include "bench/traces/trace.h"
#include "core/units.h"
#include "wire/dtype.h"

namespace sluice::bench {

struct ReplayOptions {
  std::string name;  // of the model, or the trace's file
  Trace trace;       // the same on all ranks
  wire::DType dtype = wire::DType::kF32;
  uint32_t iterations = 10;  // timed
  uint32_t warmup = 1;
  uint64_t buffer_limit = kGiB;
  std::string json;  // files of rank 0; empty: none
  std::string csv;
  std::vector<std::string> arguments;  // of the program, for the JSON
};

// Returns the exit code: kExitOk, or kExitWrongData when a sum was wrong on any rank. Throws Failure.
[[nodiscard]] int run_replay(const ReplayOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
