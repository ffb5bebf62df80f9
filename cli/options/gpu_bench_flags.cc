#include "cli/options/gpu_bench_flags.h"

#include "bench/e2e/workload/wire_type.h"
#include "cli/options/nccl_flags.h"

namespace sluice::cli {

void GpuBenchFlags::add_to(OptionSet& set) {
  bench::GpuBenchOptions& o = options_;
  set.group("Measurement (options of nccl-tests)");
  add_size_options(set, o);
  set.number("-n,--iters", o.iterations,
             "timed iterations of each stage, and end to end out of place and in place");
  set.number("-w,--warmup_iters", o.warmup, "untimed iterations of each before each row");
  set.number("-c,--check", o.check,
             "checked operations per size, out of place and in place; 0: no check, #wrong is N/A");
  add_type_options(set, op_, dtype_);
  set.group("Device and streams");
  set.text("--device", device_, "DEVICE",
           "memory of the buffers: host, cuda (GPU rank modulo the number of GPUs) or cuda:N; default: cuda "
           "if there is a GPU, otherwise host");
  add_wire_option(set, wire_);
  set.size("--staging", o.pieces.staging_bytes, "pinned memory of the host, half of it for each way");
  set.size("--piece", o.pieces.piece_bytes, "most that is copied and reduced as one, on the wire");
  set.group("Output");
  set.output_file("--json", o.json, "write results as JSON, with keys of nccl-tests and of Sluice");
  set.output_file("--csv", o.csv, "write results as CSV with raw numbers");
  set.number(
      "--max-ratio", o.max_ratio,
      "exit 2 when the time of the largest size exceeds this multiple of its slowest stage; 0: no limit");
}

bench::GpuBenchOptions GpuBenchFlags::options() const {
  bench::GpuBenchOptions o = options_;
  o.dtypes = parse_dtypes(dtype_);
  require_no_blocks(o.dtypes);
  o.ops = parse_ops(op_);
  if (!device_.empty()) o.device = bench::parse_device(device_);
  o.pieces.wire = bench::parse_wire(wire_);
  bench::check(o);
  return o;
}

}  // namespace sluice::cli
