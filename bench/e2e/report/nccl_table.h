// Functions that format the output of all_reduce_perf of nccl-tests 2.19, byte for byte, so that existing
// scripts can parse it. With `extras`, columns of Sluice follow on the right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/report/quantiles.h"
#include "wire/dtype.h"

namespace sluice::bench {

// The measurement of one size, in place or out of place.
struct Measurement {
  double seconds = 0;  // per operation
  double alg_bw = 0;   // GB/s (1e9): bytes / seconds
  double bus_bw = 0;   // alg_bw * 2(n-1)/n: the traffic of a ring, for comparison
  bool checked = false;
  uint64_t wrong = 0;         // wrong elements on all ranks
  Quantiles iterations = {};  // seconds per operation of the iterations on this rank; not in the table
  std::vector<double> iterations_of_slowest = {};  // the same, each on its slowest rank
  double began = 0;                                // Unix time of the first timed operation on this rank
};

struct Row {
  uint64_t bytes = 0;
  uint64_t count = 0;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Measurement out_of_place = {};
  Measurement in_place = {};
  // Columns of Sluice, over both measurements.
  uint64_t wire_out = 0;           // bytes sent per operation and worker, with headers
  uint64_t wire_in = 0;            // bytes received per operation and worker
  double reducer_cpu_per_gb = -1;  // CPU seconds of all reducers per 1e9 bytes received; negative: unknown
  double worker_cpu_per_gb = 0;    // CPU seconds of all workers per 1e9 bytes contributed
};

// Values of the preamble, named as in nccl-tests.
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

// Returns the name of nccl-tests: "float", "half", "int8", ...
[[nodiscard]] const char* nccl_type_name(wire::DType t) noexcept;
// The orders of `-d all` and `-o all` of nccl-tests.
[[nodiscard]] const std::vector<wire::DType>& nccl_type_order();
[[nodiscard]] const std::vector<wire::Op>& nccl_op_order();

[[nodiscard]] std::string preamble(const TableConfig& config);
// "#  Rank  0 Group  0 Pid   4711 on      host1 device  0 [0000:00:00] cpu\n"
[[nodiscard]] std::string device_line(uint32_t rank, int pid, const std::string& host, int device = 0,
                                      const std::string& kind = "cpu");
[[nodiscard]] std::string header(bool extras);
[[nodiscard]] std::string row_line(const Row& row, bool extras);
// `min_bw` negative: no limit.
[[nodiscard]] std::string footer(const std::string& program, uint64_t wrong, double average_bus_bw,
                                 double min_bw);
// Like nccl-tests, fails below 0.9 of `min_bw`.
[[nodiscard]] bool below_min_bw(double average_bus_bw, double min_bw) noexcept;

// Formats a number in `width` characters with as many decimals as fit, at most two. Uses scientific notation
// when nothing else fits.
[[nodiscard]] std::string format_to_width(double value, int width);

}  // namespace sluice::bench
