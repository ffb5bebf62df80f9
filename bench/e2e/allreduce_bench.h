// `sluice bench allreduce`: one rank's part. All ranks run the same sequence of operations; rank 0 prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/plugin_allreduce.h"
#include "bench/e2e/worker_session.h"
#include "wire/dtype.h"

namespace sluice::bench {

// Letters and meanings are nccl-tests' (README of nccl-tests 2.19).
struct AllreduceOptions {
  uint64_t min_bytes = 32 * 1024 * 1024;  // -b
  uint64_t max_bytes = 32 * 1024 * 1024;  // -e
  uint64_t step_bytes = 1024 * 1024;      // -i
  uint64_t step_factor = 1;               // -f; 1: steps of step_bytes
  int iterations = 20;                    // -n
  int warmup = 1;                         // -w
  int aggregated = 1;  // -m: operations open at once in each iteration, each with its buffer
  int cycles = 1;      // -N; 0: until interrupted
  int check = 1;       // -c: check iterations per size and side; 0: none
  int average = 1;     // -a: time of 0 rank 0, 1 mean, 2 least, 3 greatest
  int blocking = 0;    // -z: 0 and 2 wait after each iteration, 1 and a barrier, 3 a barrier outside the time
  int unalign = 0;     // -u: elements that the buffers are off their alignment
  std::vector<wire::DType> dtypes = {wire::DType::kF32};  // -d
  std::vector<wire::Op> ops = {wire::Op::kSum};           // -o
  double min_bw = -1;    // fail below 0.9 of this average bus bandwidth, GB/s; negative: don't
  bool extras = true;    // Sluice's columns to the right
  PluginOptions plugin;  // `use`: through the NCCL plugin; then `extras` is off and `aggregated` 1
  std::string json;      // files of rank 0; empty: none
  std::string csv;
  std::vector<std::string> arguments;  // of the program, for the JSON
};

// Returns the exit code: kExitOk, or kExitWrongData when a check found a wrong element on any rank or the
// bandwidth is below min_bw. Throws Failure.
[[nodiscard]] int run_allreduce(const AllreduceOptions& options, const WorkerOptions& worker);

// The sizes that a run goes through. Failure(kExitUsage) when they have no end.
[[nodiscard]] std::vector<uint64_t> sizes_of(const AllreduceOptions& options);

}  // namespace sluice::bench
