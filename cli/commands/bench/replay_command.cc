// Implements `sluice bench replay`.
#include <fmt/format.h>

#include <memory>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/launcher.h"
#include "bench/e2e/replay/bucket_buffers.h"
#include "bench/e2e/replay/replay_bench.h"
#include "bench/e2e/report/output.h"
#include "bench/traces/trace_request.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"

namespace sluice::cli {
namespace {

using bench::Bucketing;
using bench::Failure;

constexpr double kMaxScale = 1000;
constexpr uint32_t kMaxSteps = 1'000'000;

class ReplayFlags {
 public:
  explicit ReplayFlags(CLI::App& app);

  [[nodiscard]] int run(const std::vector<std::string>& arguments) const;

 private:
  void add_trace(CLI::App& app, OptionSet& set);
  void add_replay(OptionSet& set);
  void check() const;
  // Rejects options that have no effect together with `other`.
  static void reject(std::initializer_list<const CLI::Option*> options, const std::string& other);
  [[nodiscard]] wire::DType dtype() const;
  [[nodiscard]] bench::TraceRequest request() const;
  [[nodiscard]] bench::Trace trace() const;

  WorkerFlags worker_{4};
  bench::ReplayOptions replay_;
  std::string model_ = "resnet-50";
  std::string file_;
  std::string dtype_ = "f32";
  std::string bucketing_ = "ddp";
  uint64_t bucket_cap_ = 0;
  bench::HorovodOptions horovod_;
  Nanos step_ = 0;
  double compute_scale_ = 1;
  bool list_ = false;
  bool print_trace_ = false;
  CLI::Option* model_option_ = nullptr;
  CLI::Option* step_option_ = nullptr;
  CLI::Option* bucketing_option_ = nullptr;
  CLI::Option* cap_option_ = nullptr;
  CLI::Option* threshold_option_ = nullptr;
  CLI::Option* cycle_option_ = nullptr;
};

ReplayFlags::ReplayFlags(CLI::App& app) {
  OptionSet set(app);
  add_trace(app, set);
  add_replay(set);
  worker_.add_to(set);
}

void ReplayFlags::add_trace(CLI::App& app, OptionSet& set) {
  set.group("Workload");
  model_option_ = set.text("--model", model_, "NAME", "network whose gradients are reduced; see --list");
  // Has no variable, because SLUICE_TRACE is the trace that a client writes.
  app.add_option(
         "--trace", file_,
         "trace to use instead of a network: lines \"<ready_us> <bytes>\" in order of time, with # comments")
      ->type_name("FILE")
      ->group("Workload")
      ->take_last();
  set.text("-d,--datatype", dtype_, "TYPE", "data type of the gradients on the wire: f32, bf16 or f16");
  bucketing_option_ = set.text("--bucketing", bucketing_, "METHOD",
                               "bucketing of gradients: ddp (PyTorch 2), horovod (0.21 to 0.28) or none")
                          ->check(CLI::IsMember({"ddp", "horovod", "none"}));
  cap_option_ =
      set.size("--bucket-cap", bucket_cap_,
               "with ddp: bucket size; 0: 1M for the first bucket and 25M for the others, PyTorch's default");
  threshold_option_ = set.size("--fusion-threshold", horovod_.threshold,
                               "with horovod: size limit of a fused operation; 0: no fusion");
  cycle_option_ = set.duration("--cycle-time", horovod_.cycle, "with horovod: time between two cycles");
  step_option_ =
      set.duration("--step-time", step_,
                   "compute time of a step, forward and backward; 0: the assumption shown by --list");
  set.number("--compute-scale", compute_scale_,
             "factor for the times at which buckets are ready; 0: communication only");
  set.flag("--print-trace", print_trace_, "print the trace in the format of --trace, then exit");
  set.flag("--list", list_, "list the networks, then exit");
}

void ReplayFlags::add_replay(OptionSet& set) {
  set.group("Replay");
  set.number("-n,--iters", replay_.iterations, "timed steps")->check(CLI::Range(1U, kMaxSteps));
  set.number("-w,--warmup", replay_.warmup, "untimed steps before them")->check(CLI::Range(0U, kMaxSteps));
  set.size("--buffer-limit", replay_.buffer_limit,
           "memory limit for a worker's gradients; buckets share memory when they exceed it");
  set.output_file("--json", replay_.json, "write results as JSON");
  set.output_file("--csv", replay_.csv, "write results as CSV, one line per step");
}

void ReplayFlags::reject(std::initializer_list<const CLI::Option*> options, const std::string& other) {
  for (const CLI::Option* option : options) {
    if (option->count() > 0)
      throw Failure(bench::kExitUsage, fmt::format("{} has no effect with {}", option->get_name(), other));
  }
}

void ReplayFlags::check() const {
  if (!file_.empty()) {
    reject({model_option_, step_option_, bucketing_option_, cap_option_, threshold_option_, cycle_option_},
           "--trace");
  }
  if (bucketing_ != "ddp") reject({cap_option_}, "--bucketing " + bucketing_);
  if (bucketing_ != "horovod") reject({threshold_option_, cycle_option_}, "--bucketing " + bucketing_);
  if (!(compute_scale_ >= 0 && compute_scale_ <= kMaxScale)) {
    throw Failure(bench::kExitUsage,
                  fmt::format("--compute-scale {}: must be 0 to {}", compute_scale_, kMaxScale));
  }
  constexpr auto kMaxStep = static_cast<Nanos>(bench::kMaxReadyUs) * kMicrosecond;
  if (step_ > kMaxStep) throw Failure(bench::kExitUsage, "--step-time must be at most 24h");
  if (horovod_.cycle > kMaxStep) throw Failure(bench::kExitUsage, "--cycle-time must be at most 24h");
}

wire::DType ReplayFlags::dtype() const {
  const auto dtype = wire::parse_dtype(dtype_);
  if (dtype == wire::DType::kF32 || dtype == wire::DType::kBf16 || dtype == wire::DType::kF16) return *dtype;
  throw Failure(bench::kExitUsage,
                fmt::format("unknown data type \"{}\"; expected f32, bf16 or f16", dtype_));
}

bench::TraceRequest ReplayFlags::request() const {
  bench::TraceRequest request{.model = model_,
                              .step = step_,
                              .bucketing = bucketing_ == "ddp"       ? Bucketing::kDdp
                                           : bucketing_ == "horovod" ? Bucketing::kHorovod
                                                                     : Bucketing::kNone,
                              .ddp = {},
                              .horovod = horovod_,
                              .file = file_,
                              .element_bytes = wire::size_of(dtype()),
                              .compute_scale = compute_scale_};
  // As in PyTorch, an explicit cap also applies to the first bucket.
  if (bucket_cap_ != 0) request.ddp = {.first_cap = bucket_cap_, .cap = bucket_cap_};
  return request;
}

bench::Trace ReplayFlags::trace() const {
  check();
  return bench::value_or_fail(bench::trace_of(request()), bench::kExitUsage);
}

int ReplayFlags::run(const std::vector<std::string>& arguments) const {
  if (list_) {
    bench::print_result(bench::model_list(wire::size_of(dtype())));
    return bench::kExitOk;
  }
  if (print_trace_) {
    bench::print_result(bench::trace_text(trace()));
    return bench::kExitOk;
  }
  bench::ReplayOptions options = replay_;
  options.name = file_.empty() ? model_ : file_;
  options.trace = trace();
  options.dtype = dtype();
  options.arguments = arguments;
  if (worker_.is_worker()) return bench::run_replay(options, worker_.worker());
  bench::check_buffer_limit(options.trace.buckets,
                            options.buffer_limit);  // one error instead of one per worker
  return bench::launch(worker_.launch(arguments));
}

}  // namespace

void add_bench_replay(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app = bench.add_subcommand("replay",
                                       "replay the gradient traffic of training steps, bucketed like in "
                                       "frameworks, with the compute time between buckets");
  app->footer(
      "Waiting takes the place of computation. A step begins with its forward pass; the times follow from "
      "the number of operations of the network.\n"
      "  sluice bench replay --model bert-large -d bf16 --compute-scale 0 --workers 4 --reducers 2\n"
      "  sluice bench replay --model resnet-50 --bucketing horovod --print-trace > resnet.trace\n"
      "Exit 2: wrong data.");
  auto flags = std::make_shared<ReplayFlags>(*app);
  run_when_selected(*app, chosen, flags, [&arguments](const ReplayFlags& f) { return f.run(arguments); });
}

}  // namespace sluice::cli
