// Runs one rank of `sluice bench allreduce`. All ranks run the same sequence of operations; rank 0 prints the
// report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/allreduce/plugin_allreduce.h"
#include "bench/e2e/worker/worker_session.h"
#include "bench/e2e/workload/size_sweep.h"
#include "gpu_client/pipeline/cast.h"
#include "wire/dtype.h"

namespace sluice::bench {

// The letters and meanings of the options are those of nccl-tests 2.19.
struct AllreduceOptions {
  uint64_t min_bytes = 32 * 1024 * 1024;  // -b
  uint64_t max_bytes = 32 * 1024 * 1024;  // -e
  uint64_t step_bytes = 1024 * 1024;      // -i
  uint64_t step_factor = 1;               // -f; 1: the size grows by step_bytes
  int iterations = 20;                    // -n
  int warmup = 1;                         // -w
  int aggregated = 1;  // -m: concurrent operations of each iteration, each with its own receive buffer
  int cycles = 1;      // -N; 0: until interrupted
  int check = 1;       // -c: checked iterations per size, out of place and in place each; 0: none
  int average = 1;     // -a: reported time: 0 of rank 0, 1 mean, 2 minimum, 3 maximum over the ranks
  int blocking = 0;    // -z: 0, 2: wait after each iteration; 1: also a barrier; 3: an untimed barrier
  int unalign = 0;     // -u: offset of the buffers from their alignment, in elements
  std::vector<wire::DType> dtypes = {wire::DType::kF32};  // -d
  std::vector<wire::Op> ops = {wire::Op::kSum};           // -o
  pipeline::WireCast wire = pipeline::WireCast::kNone;    // of sums and averages of f32
  double zeros = 0;      // fraction of the blocks of 64 elements that are zero on all ranks
  double min_bw = -1;    // GB/s; the run fails below 0.9 of this average bus bandwidth; negative: no limit
  bool extras = true;    // prints the additional columns of Sluice
  PluginOptions plugin;  // with `plugin.use`, `extras` is false and `aggregated` is 1
  std::string json;      // files that rank 0 writes; empty: none
  std::string csv;
  std::vector<std::string> arguments;    // command line, for the JSON file
  std::vector<std::string> environment;  // recorded_environment() as the user set it, for the JSON file
};

// Returns kExitOk, or kExitCheckFailed when any rank found a wrong element or the bandwidth is below min_bw.
// Throws Failure.
[[nodiscard]] int run_allreduce(const AllreduceOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
