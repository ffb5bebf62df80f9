#include "cli/nccl_flags.h"

#include <fmt/format.h>

#include <cstdlib>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/nccl_table.h"

namespace sluice::cli {
namespace {

using bench::Failure;

// Letters of nccl-tests that are about GPUs, CUDA or NCCL itself. The value that changes nothing is taken, so
// that command lines people have in their fingers (`-g 1`) work.
struct Foreign {
  const char* names;
  const char* harmless;
  const char* reason;
};
constexpr std::array<Foreign, 14> kForeign = {{
    {"-t,--nthreads", "1", "a worker process has one rank; use --workers"},
    {"-g,--ngpus", "1", "workers are processes without GPUs; use --workers"},
    {"-p,--parallel_init", "0", "there is one rank per process"},
    {"-y,--stream_null", "0", "there are no CUDA streams"},
    {"-G,--cudagraph", "0", "there are no CUDA graphs"},
    {"-C,--report_cputime", "0", "the worker CPU column tells CPU time; the time column is the clock's"},
    {"-R,--local_register", "0", "host memory needs no registration over TCP"},
    {"-x,--cta_policy", "", "there are no CTAs"},
    {"-D,--device_implementation", "0", "there is no device API"},
    {"-V,--device_cta_count", "16", "there is no device API"},
    {"-S,--report_timestamps", "0", "rows carry no time stamps"},
    {"-M,--memory", "0", "there is no GPU memory to report"},
    {"-I,--per_iter_timing", "0", "--json and --csv have median and p99 of the iterations"},
    {"-K,--per_iter_skip", "0", "--json and --csv have median and p99 of the iterations"},
}};

void at_least(int value, int least, const char* what) {
  if (value < least) throw Failure(bench::kExitUsage, fmt::format("{} {} is below {}", what, value, least));
}

}  // namespace

std::vector<wire::DType> dtypes_named(const std::string& text) {
  if (text == "all") return bench::nccl_type_order();
  if (const auto dtype = wire::parse_dtype(text)) return {*dtype};
  throw Failure(bench::kExitUsage, fmt::format("datatype \"{}\" is not known", text));
}

std::vector<wire::Op> ops_named(const std::string& text) {
  if (text == "all") return bench::nccl_op_order();
  if (const auto op = wire::parse_op(text)) return {*op};
  throw Failure(bench::kExitUsage, fmt::format("op \"{}\" is not known", text));
}

void NcclFlags::add_to(OptionSet& set, CLI::App& app) {
  bench::AllreduceOptions& o = options_;
  set.group("What to measure (letters of nccl-tests)");
  set.size("-b,--minbytes", o.min_bytes, "size to start with");
  set.size("-e,--maxbytes", o.max_bytes, "size to end with");
  set.size("-i,--stepbytes", o.step_bytes, "fixed increment between sizes");
  set.number("-f,--stepfactor", o.step_factor, "multiplication factor between sizes; 1: increments of -i");
  set.number("-n,--iters", o.iterations, "timed iterations");
  set.number("-w,--warmup_iters", o.warmup, "warm-up iterations at sizes by factors of 2");
  set.number("-m,--agg_iters", o.aggregated,
             "operations open at once in each iteration, each with a buffer of its own");
  set.number("-N,--run_cycles", o.cycles, "run and print all sizes so often; 0: until interrupted");
  set.number("-c,--check", o.check, "check iterations per size and side; 0: no check, #wrong is N/A");
  set.text("-o,--op", op_, "OP", "sum, prod, min, max, avg or all");
  set.text("-d,--datatype", dtype_, "TYPE",
           "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or all");
  set.number("-a,--average", o.average, "time shown: 0 rank 0's, 1 mean over ranks, 2 least, 3 greatest")
      ->check(CLI::Range(0, 3));
  set.number("-z,--blocking", o.blocking,
             "0, 2: wait after each iteration; 1: and a barrier; 3: and a barrier outside the time")
      ->check(CLI::Range(0, 3));
  set.number("-u,--unalign", o.unalign, "elements that the buffers are off their alignment");
  set.text("-r,--root", root_, "RANK", "taken and ignored: allreduce has no root");
  app.add_option("-T", timeout_s_, "as --timeout, in seconds")
      ->group("What to measure (letters of nccl-tests)")
      ->take_last();
  set.group("Through the NCCL plugin");
  set.flag("--through-plugin", o.plugin.use,
           "use the NCCL plugin as NCCL does instead of the client library; no columns of Sluice's own");
  set.text("--plugin", o.plugin.file, "FILE", "the plugin; default: the one beside this program");
  set.size("--request", o.plugin.request_bytes, "most of one request; NCCL's: channels of a group x chunk");
  set.number("--steps", o.plugin.steps, "requests in flight")->check(CLI::Range(1, 64));
  set.group("What to tell");
  set.text("--json", json_, "FILE", "results with nccl-tests' keys and Sluice's own");
  set.text("-J,--output_file", output_file_, "FILE", "the same");
  set.text("--csv", csv_, "FILE", "results, raw numbers");
  set.flag("--plain", plain_, "nothing but nccl-tests' columns");
  set.number("--min-bw", o.min_bw,
             "exit 2 below 0.9 of this average bus bandwidth, GB/s (also NCCL_TESTS_MIN_BW)")
      ->default_str("");
  for (size_t i = 0; i < kForeign.size(); ++i)
    app.add_option(kForeign[i].names, foreign_[i])->group("")->take_last();
}

bench::AllreduceOptions NcclFlags::options() const {
  for (size_t i = 0; i < kForeign.size(); ++i) {
    if (!foreign_[i].empty() && foreign_[i] != kForeign[i].harmless) {
      throw Failure(bench::kExitUsage, fmt::format("{} {} is not supported: {}", kForeign[i].names,
                                                   foreign_[i], kForeign[i].reason));
    }
  }
  bench::AllreduceOptions o = options_;
  at_least(o.iterations, 1, "iters");
  at_least(o.warmup, 0, "warmup_iters");
  at_least(o.aggregated, 1, "agg_iters");
  at_least(o.cycles, 0, "run_cycles");
  at_least(o.check, 0, "check");
  at_least(o.unalign, 0, "unalign");
  if (o.aggregated > 1024)
    throw Failure(bench::kExitUsage, "agg_iters is above 1024, the most operations that may be open");
  (void)bench::sizes_of(o);
  o.dtypes = dtypes_named(dtype_);
  o.ops = ops_named(op_);
  o.json = json_.empty() ? output_file_ : json_;
  o.csv = csv_;
  o.extras = !plain_ && !o.plugin.use;
  if (o.plugin.use && o.aggregated != 1)
    throw Failure(bench::kExitUsage,
                  "through the plugin one operation follows the other: agg_iters must be 1");
  if (o.plugin.use && o.plugin.request_bytes == 0) throw Failure(bench::kExitUsage, "request is 0");
  if (const char* asked = std::getenv("NCCL_TESTS_MIN_BW"); asked != nullptr && o.min_bw < 0)
    o.min_bw = std::atof(asked);
  return o;
}

}  // namespace sluice::cli
