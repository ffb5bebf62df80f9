#include "cli/options/nccl_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/nccl_table.h"
#include "bench/e2e/workload/wire_type.h"

namespace sluice::cli {
namespace {

using bench::Failure;

// Options of nccl-tests for GPUs, CUDA or NCCL itself. The default value is accepted, so that habitual
// command lines such as `-g 1` work.
struct UnsupportedFlag {
  const char* names;
  const char* accepted;
  const char* reason;
};
constexpr std::array<UnsupportedFlag, 14> kUnsupportedFlags = {{
    {"-t,--nthreads", "1", "a worker process has one rank; use --workers"},
    {"-g,--ngpus", "1", "workers use no GPUs; use --workers"},
    {"-p,--parallel_init", "0", "there is one rank per process"},
    {"-y,--stream_null", "0", "there are no CUDA streams"},
    {"-G,--cudagraph", "0", "there are no CUDA graphs"},
    {"-C,--report_cputime", "0",
     "the worker CPU column shows CPU time; the time column shows wall-clock time"},
    {"-R,--local_register", "0", "host memory needs no registration over TCP"},
    {"-x,--cta_policy", "", "there are no CTAs"},
    {"-D,--device_implementation", "0", "there is no device API"},
    {"-V,--device_cta_count", "16", "there is no device API"},
    {"-S,--report_timestamps", "0", "rows have no timestamps"},
    {"-M,--memory", "0", "there is no GPU memory to report"},
    {"-I,--per_iter_timing", "0", "--json and --csv contain median and p99 of the iterations"},
    {"-K,--per_iter_skip", "0", "--json and --csv contain median and p99 of the iterations"},
}};

void require_at_least(int value, int min, const char* option) {
  if (value < min)
    throw Failure(bench::kExitUsage, fmt::format("{} {}: must be at least {}", option, value, min));
}

}  // namespace

std::vector<wire::DType> parse_dtypes(const std::string& text) {
  if (text == "all") return bench::nccl_type_order();
  if (const auto dtype = wire::parse_dtype(text)) return {*dtype};
  throw Failure(bench::kExitUsage, fmt::format("unknown data type \"{}\"", text));
}

void require_no_blocks(const std::vector<wire::DType>& dtypes) {
  for (const wire::DType t : dtypes) {
    if (wire::is_block(t))
      throw Failure(
          bench::kExitUsage,
          fmt::format("--datatype {} is a wire type; use --datatype float with --wire", wire::to_string(t)));
  }
}

std::vector<wire::Op> parse_ops(const std::string& text) {
  if (text == "all") return bench::nccl_op_order();
  if (const auto op = wire::parse_op(text)) return {*op};
  throw Failure(bench::kExitUsage, fmt::format("unknown operator \"{}\"", text));
}

void add_type_options(OptionSet& set, std::string& op, std::string& dtype) {
  set.text("-o,--op", op, "OP", "reduction operator: sum, prod, min, max, avg or all");
  set.text("-d,--datatype", dtype, "TYPE",
           "data type: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, "
           "f8e5m2 or all");
}

void add_wire_option(OptionSet& set, std::string& wire) {
  set.text(
      "--wire", wire, "FORMAT",
      "wire format of float sums and averages: given (the data type of the buffers), bf16, f16, mxfp8 or "
      "int8");
}

void NcclFlags::add_to(OptionSet& set, CLI::App& app) {
  bench::AllreduceOptions& o = options_;
  constexpr const char* kMeasurement = "Measurement (options of nccl-tests)";
  set.group(kMeasurement);
  add_size_options(set, o);
  set.number("-n,--iters", o.iterations, "timed iterations");
  set.number("-w,--warmup_iters", o.warmup, "warm-up iterations at each size, doubled from first to last");
  set.number("-m,--agg_iters", o.aggregated,
             "operations in flight in each iteration, each with its own buffer");
  set.number("-N,--run_cycles", o.cycles, "number of runs over all sizes; 0: until interrupted");
  set.number("-c,--check", o.check,
             "checked iterations per size, out of place and in place; 0: no check, #wrong is N/A");
  add_type_options(set, op_, dtype_);
  add_wire_option(set, wire_);
  set.number("--zeros", o.zeros, "fraction of the blocks of 64 elements that are zero on all ranks")
      ->check(CLI::Range(0.0, 1.0));
  set.number("-a,--average", o.average,
             "reported time. 0: of rank 0; 1: mean over ranks; 2: minimum; 3: maximum")
      ->check(CLI::Range(0, 3));
  set.number("-z,--blocking", o.blocking,
             "synchronization after each iteration. 0, 2: wait; 1: wait and barrier; 3: wait, and a barrier "
             "that is not timed")
      ->check(CLI::Range(0, 3));
  set.number("-u,--unalign", o.unalign, "offset of the buffers from their alignment, in elements");
  set.text("-r,--root", root_, "RANK", "accepted and ignored, because allreduce has no root");
  app.add_option("-T", timeout_s_, "time limit in seconds, like --timeout")->group(kMeasurement)->take_last();
  set.group("Through the NCCL plugin");
  set.flag("--through-plugin", o.plugin.use,
           "call the NCCL plugin like NCCL instead of the client library; omits Sluice's own columns");
  set.text("--plugin", o.plugin.file, "FILE", "path of the plugin; default: in the folder of this program");
  set.size("--request", o.plugin.request_bytes,
           "largest request; in NCCL the channels of a group x the chunk size");
  set.number("--steps", o.plugin.steps, "requests in flight")->check(CLI::Range(1, 64));
  set.group("Output");
  set.output_file("--json", json_, "write results as JSON, with keys of nccl-tests and of Sluice");
  set.output_file("-J,--output_file", output_file_, "same as --json");
  set.output_file("--csv", csv_, "write results as CSV with raw numbers");
  set.flag("--plain", plain_, "print only the columns of nccl-tests");
  set.number("--min-bw", o.min_bw,
             "exit 2 when the average bus bandwidth is below 0.9 of this, in GB/s (also NCCL_TESTS_MIN_BW)")
      ->default_str("");
  for (size_t i = 0; i < kUnsupportedFlags.size(); ++i)
    app.add_option(kUnsupportedFlags[i].names, unsupported_[i])->group("")->take_last();
}

bench::AllreduceOptions NcclFlags::options() const {
  for (size_t i = 0; i < kUnsupportedFlags.size(); ++i) {
    if (!unsupported_[i].empty() && unsupported_[i] != kUnsupportedFlags[i].accepted) {
      throw Failure(bench::kExitUsage, fmt::format("{} {} is not supported: {}", kUnsupportedFlags[i].names,
                                                   unsupported_[i], kUnsupportedFlags[i].reason));
    }
  }
  bench::AllreduceOptions o = options_;
  require_at_least(o.iterations, 1, "--iters");
  require_at_least(o.warmup, 0, "--warmup_iters");
  require_at_least(o.aggregated, 1, "--agg_iters");
  require_at_least(o.cycles, 0, "--run_cycles");
  require_at_least(o.check, 0, "--check");
  require_at_least(o.unalign, 0, "--unalign");
  if (o.aggregated > 1024)
    throw Failure(
        bench::kExitUsage,
        fmt::format("--agg_iters {}: must be at most 1024, the limit of operations in flight", o.aggregated));
  (void)bench::sizes_of(o);
  o.dtypes = parse_dtypes(dtype_);
  require_no_blocks(o.dtypes);
  o.ops = parse_ops(op_);
  o.wire = bench::parse_wire(wire_);
  if (o.wire != pipeline::WireCast::kNone && o.plugin.use)
    throw Failure(bench::kExitUsage, "--wire does not apply to --through-plugin: NCCL chooses the type");
  if (o.wire != pipeline::WireCast::kNone &&
      !std::ranges::all_of(o.dtypes, [](wire::DType t) { return t == wire::DType::kF32; })) {
    throw Failure(bench::kExitUsage, fmt::format("--wire {} requires --datatype float", wire_));
  }
  if (pipeline::is_block(o.wire)) {
    for (const wire::Op op : o.ops) {
      if (op == wire::Op::kSum || op == wire::Op::kAvg) continue;
      throw Failure(bench::kExitUsage, fmt::format("--wire {} does not support --op {}; expected sum or avg",
                                                   wire_, wire::to_string(op)));
    }
  }
  o.json = json_.empty() ? output_file_ : json_;
  o.csv = csv_;
  o.extras = !plain_ && !o.plugin.use;
  if (o.plugin.use && o.aggregated != 1)
    throw Failure(bench::kExitUsage,
                  "--through-plugin requires --agg_iters 1: the plugin runs one operation at a time");
  if (o.plugin.use && o.plugin.request_bytes == 0)
    throw Failure(bench::kExitUsage, "--request must be greater than 0");
  if (const char* min_bw = std::getenv("NCCL_TESTS_MIN_BW"); min_bw != nullptr && o.min_bw < 0)
    o.min_bw = std::atof(min_bw);
  return o;
}

}  // namespace sluice::cli
