// The text that nccl-tests' all_reduce_perf (2.19) prints, byte for byte, so that scripts that read it read
// ours. Sluice's own columns stand to the right of it, or nowhere (`extras` false).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/quantiles.h"
#include "wire/dtype.h"

namespace sluice::bench {

// One timed side of a row.
struct Measurement {
  double seconds = 0;  // per operation
  double alg_bw = 0;   // GB/s (1e9): bytes / seconds
  double bus_bw = 0;   // alg_bw * 2(n-1)/n: a ring's traffic, for comparison
  bool checked = false;
  uint64_t wrong = 0;         // elements, over all ranks
  Quantiles iterations = {};  // one by one at this rank, seconds per operation; not in the table
  std::vector<double> iterations_of_slowest = {};  // the same of each, at the rank that took longest for it
};

struct Row {
  uint64_t bytes = 0;
  uint64_t count = 0;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Measurement out_of_place = {};
  Measurement in_place = {};
  // Sluice's own, over both sides.
  uint64_t wire_out = 0;  // bytes sent per operation and worker, with headers
  uint64_t wire_in = 0;   // bytes received per operation and worker
  double reducer_cpu_per_gb =
      -1;                        // CPU seconds of all reducers per 1e9 bytes they received; negative: unknown
  double worker_cpu_per_gb = 0;  // CPU seconds of all workers per 1e9 bytes they contributed
};

// What the preamble tells, in nccl-tests' words.
struct TableConfig {
  std::string version;  // of Sluice
  std::string program = "sluice bench allreduce";
  uint64_t min_bytes = 0;
  uint64_t max_bytes = 0;
  uint64_t step = 0;
  bool step_is_factor = false;
  int warmup = 0;
  int iterations = 0;
  int aggregated = 0;
  int check = 0;
  int unalign = 0;
  int blocking = 0;
  bool extras = true;
};

// "float", "half", "int8", ...: nccl-tests' names.
[[nodiscard]] const char* nccl_type_name(wire::DType t) noexcept;
// The order of nccl-tests' `-d all` and `-o all`.
[[nodiscard]] const std::vector<wire::DType>& nccl_type_order();
[[nodiscard]] const std::vector<wire::Op>& nccl_op_order();

[[nodiscard]] std::string preamble(const TableConfig& config);
// "#  Rank  0 Group  0 Pid   4711 on      host1 device  0 [0000:00:00] cpu\n"
[[nodiscard]] std::string device_line(uint32_t rank, int pid, const std::string& host, int device = 0,
                                      const std::string& kind = "cpu");
[[nodiscard]] std::string header(bool extras);
[[nodiscard]] std::string row_line(const Row& row, bool extras);
// `min_bw` negative: not asked for.
[[nodiscard]] std::string footer(const std::string& program, uint64_t wrong, double average_bus_bw,
                                 double min_bw);
// nccl-tests fails below 0.9 of what was asked for.
[[nodiscard]] bool below_min_bw(double average_bus_bw, double min_bw) noexcept;

// A number in `width` characters with as many decimals as fit, at most two; scientific when nothing else
// does.
[[nodiscard]] std::string fitted(double value, int width);

}  // namespace sluice::bench
