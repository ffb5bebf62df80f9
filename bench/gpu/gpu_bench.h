// `sluice-gpu-bench`: allreduces on a device's streams, end to end, beside the three stages that they
// overlap, each alone (stages.h), in turns. One rank's part; all ranks run the same sequence, rank 0 prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/nccl_table.h"
#include "bench/e2e/worker_session.h"
#include "bench/gpu/bench_device.h"
#include "bench/gpu/stages.h"
#include "wire/dtype.h"

namespace sluice::bench {

// Letters and meanings are nccl-tests'.
struct GpuBenchOptions {
  DeviceChoice device;
  uint64_t min_bytes = 32 * kMiB;                         // -b
  uint64_t max_bytes = 32 * kMiB;                         // -e
  uint64_t step_bytes = kMiB;                             // -i
  uint64_t step_factor = 1;                               // -f; 1: steps of step_bytes
  int iterations = 20;                                    // -n: of each stage, and of each side end to end
  int warmup = 1;                                         // -w: untimed ones of each before each row
  int check = 1;                                          // -c: checked operations per row and side; 0: none
  std::vector<wire::DType> dtypes = {wire::DType::kF32};  // -d
  std::vector<wire::Op> ops = {wire::Op::kSum};           // -o
  PieceOptions pieces;
  double max_ratio = 0;  // fail above it at the largest size; 0: don't
  std::string json;      // files of rank 0; empty: none
  std::string csv;
  std::vector<std::string> arguments;  // of the program, for the JSON
};

struct GpuRow {
  Row table;  // end to end, in nccl-tests' columns
  // Alone: seconds, and GB/s of the operation's bytes, however few of them travel.
  Measurement copy_out = {};
  Measurement network = {};
  Measurement copy_in = {};
  // Processor seconds of a rank for one of each, mean over ranks: what a machine with too few cores is short
  // of.
  struct Cpu {
    double copy_out = 0;
    double network = 0;
    double copy_in = 0;
    double out_of_place = 0;
    double in_place = 0;
  } cpu = {};
  uint64_t pieces = 0;       // of one operation, as the stages cut it ...
  uint64_t pieces_sent = 0;  // ... and as the session counted them over all of the row,
  uint64_t operations = 0;   // which were so many

  [[nodiscard]] const Measurement& slowest() const noexcept;
  [[nodiscard]] const char* slowest_name() const noexcept;
  // Time end to end, out of place, over that of the slowest stage alone.
  [[nodiscard]] double ratio() const noexcept;
};

// Failure(kExitUsage) when they make no sense.
void check(const GpuBenchOptions& options);

// Returns kExitOk, or kExitWrongData when a check found a wrong element on any rank or a ratio is above
// max_ratio. Throws Failure.
[[nodiscard]] int run_gpu_bench(const GpuBenchOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
