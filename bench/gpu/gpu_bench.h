// Runs one rank of `sluice-gpu-bench`: measures allreduces on the streams of a device, and each of the three
// stages that they overlap alone (stages.h), in interleaved iterations. All ranks run the same sequence; rank
// 0 prints.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/report/nccl_table.h"
#include "bench/e2e/worker/worker_session.h"
#include "bench/gpu/bench_device.h"
#include "bench/gpu/stages.h"
#include "core/units.h"
#include "wire/dtype.h"

namespace sluice::bench {

// The letters and meanings of the options are those of nccl-tests.
struct GpuBenchOptions {
  DeviceChoice device;
  uint64_t min_bytes = 32 * kMiB;                         // -b
  uint64_t max_bytes = 32 * kMiB;                         // -e
  uint64_t step_bytes = kMiB;                             // -i
  uint64_t step_factor = 1;                               // -f; 1: the size grows by step_bytes
  int iterations = 20;                                    // -n: per stage and per operation
  int warmup = 1;                                         // -w: untimed iterations before each row
  int check = 1;                                          // -c: checked operations per row; 0: none
  std::vector<wire::DType> dtypes = {wire::DType::kF32};  // -d
  std::vector<wire::Op> ops = {wire::Op::kSum};           // -o
  PieceOptions pieces;
  double max_ratio = 0;  // maximum ratio at the largest size; above it the run fails; 0: none
  std::string json;      // files that rank 0 writes; empty: none
  std::string csv;
  std::vector<std::string> arguments;  // command line, for the JSON file
};

inline constexpr uint64_t kLimitBytes = 64 * kMiB;

// The maximum bandwidth of copies between device and host in GB/s (1e9 bytes): one large copy from or to
// pinned memory, with the same calls as the pipeline. Each value is the median of several copies.
struct CopyLimits {
  double out_alone = 0;        // device to host on one rank, the others idle
  double in_alone = 0;         // host to device on one rank, the others idle
  double out_concurrent = 0;   // device to host on all ranks at once, mean of the ranks
  double in_concurrent = 0;    // host to device on all ranks at once, mean of the ranks
  double both_concurrent = 0;  // both directions on all ranks at once, per direction and rank
};

// Names of the interleaved measurements: the stages, and the operations end to end.
inline constexpr std::array<const char*, 5> kTimedTasks = {"d2h", "network", "h2d", "out_of_place",
                                                           "in_place"};

struct GpuRow {
  Row table;  // end to end, in the columns of nccl-tests
  // Each stage alone. GB/s refer to the bytes of the operation, even if fewer bytes are transferred.
  Measurement copy_out = {};
  Measurement network = {};
  Measurement copy_in = {};
  // CPU seconds of a rank per iteration by kTimedTasks, mean over the ranks. They show whether the machine
  // has too few cores.
  std::array<double, 5> cpu = {};
  uint64_t pieces = 0;       // number of pieces of one operation in the stages
  uint64_t pieces_sent = 0;  // number of pieces that the session counted during the row
  uint64_t operations = 0;   // number of operations of the row

  [[nodiscard]] const Measurement& slowest() const noexcept;
  [[nodiscard]] const char* slowest_name() const noexcept;
  // Returns the time end to end, out of place, divided by the time of the slowest stage alone.
  [[nodiscard]] double ratio() const noexcept;
};

// Throws Failure(kExitUsage) when the options are invalid.
void check(const GpuBenchOptions& options);

// Returns kExitOk, or kExitCheckFailed when any rank found a wrong element or a ratio is above max_ratio.
// Throws Failure.
[[nodiscard]] int run_gpu_bench(const GpuBenchOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
