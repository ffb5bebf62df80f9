#include "cli/gpu_bench_flags.h"

#include "cli/nccl_flags.h"

namespace sluice::cli {

void GpuBenchFlags::add_to(OptionSet& set) {
  bench::GpuBenchOptions& o = options_;
  set.group("What to measure (letters of nccl-tests)");
  set.size("-b,--minbytes", o.min_bytes, "size to start with");
  set.size("-e,--maxbytes", o.max_bytes, "size to end with");
  set.size("-i,--stepbytes", o.step_bytes, "fixed increment between sizes");
  set.number("-f,--stepfactor", o.step_factor, "multiplication factor between sizes; 1: increments of -i");
  set.number("-n,--iters", o.iterations, "timed iterations, of each stage and of each side end to end");
  set.number("-w,--warmup_iters", o.warmup, "untimed ones of each before each row");
  set.number("-c,--check", o.check, "checked operations per size and side; 0: no check, #wrong is N/A");
  set.text("-o,--op", op_, "OP", "sum, prod, min, max, avg or all");
  set.text("-d,--datatype", dtype_, "TYPE",
           "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or all");
  set.group("Device and streams");
  set.text(
      "--device", device_, "DEVICE",
      "host; cuda, rank modulo the number of GPUs; cuda:N; default: cuda where there is a GPU, else host");
  set.text("--wire", wire_, "FORM", "how sums and averages of float travel: given, bf16 or f16")
      ->check(CLI::IsMember({"given", "bf16", "f16"}));
  set.size("--staging", o.pieces.staging_bytes, "pinned memory of the host, half of it for each way");
  set.size("--piece", o.pieces.piece_bytes, "most that is copied and reduced as one, on the wire");
  set.group("What to tell");
  set.text("--json", o.json, "FILE", "results with nccl-tests' keys and Sluice's own");
  set.text("--csv", o.csv, "FILE", "results, raw numbers");
  set.number("--max-ratio", o.max_ratio,
             "exit 2 when the largest size takes more than this times the slowest single stage; 0: don't");
}

bench::GpuBenchOptions GpuBenchFlags::options() const {
  bench::GpuBenchOptions o = options_;
  o.dtypes = dtypes_named(dtype_);
  o.ops = ops_named(op_);
  if (!device_.empty()) o.device = bench::parse_device(device_);
  if (wire_ == "bf16") o.pieces.wire = pipeline::WireCast::kBf16;
  if (wire_ == "f16") o.pieces.wire = pipeline::WireCast::kScaledF16;
  bench::check(o);
  return o;
}

}  // namespace sluice::cli
