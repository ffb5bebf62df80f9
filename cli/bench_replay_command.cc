// `sluice bench replay`
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "bench/e2e/bucket_buffers.h"
#include "bench/e2e/exit_codes.h"
#include "bench/e2e/launcher.h"
#include "bench/e2e/replay_bench.h"
#include "bench/traces/model_list.h"
#include "bench/traces/trace_request.h"
#include "cli/bench_commands.h"
#include "cli/option_set.h"
#include "cli/worker_flags.h"

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
  void add_trace(OptionSet& set);
  void add_play(OptionSet& set);
  void check() const;
  // Options that were given although `why` makes them mean nothing.
  static void refuse(std::initializer_list<const CLI::Option*> options, const std::string& why);
  [[nodiscard]] wire::DType dtype() const;
  [[nodiscard]] bench::TraceRequest request() const;
  [[nodiscard]] bench::Trace trace() const;
  [[nodiscard]] bench::ReplayOptions options(const std::vector<std::string>& arguments) const;

  WorkerFlags worker_{4};
  bench::ReplayOptions play_;
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
  add_trace(set);
  add_play(set);
  worker_.add_to(set);
}

void ReplayFlags::add_trace(OptionSet& set) {
  set.group("What is reduced, and when");
  model_option_ = set.text("--model", model_, "NAME", "network whose gradients are reduced: see --list");
  set.text("--trace", file_, "FILE",
           "instead of a network: lines \"<ready_us> <bytes>\" in order of time, # begins a comment");
  set.text("-d,--datatype", dtype_, "TYPE", "of the gradients on the wire: f32, bf16 or f16");
  bucketing_option_ = set.text("--bucketing", bucketing_, "WAY",
                               "ddp (PyTorch 2), horovod (0.21 to 0.28), none: each gradient by itself")
                          ->check(CLI::IsMember({"ddp", "horovod", "none"}));
  cap_option_ =
      set.size("--bucket-cap", bucket_cap_,
               "ddp: a bucket is full with this; 0: 1M for the first, 25M for the others, as PyTorch when "
               "bucket_cap_mb is not given");
  threshold_option_ =
      set.size("--fusion-threshold", horovod_.threshold, "horovod: most that is fused; 0: nothing");
  cycle_option_ = set.duration("--cycle-time", horovod_.cycle, "horovod: time between two turns");
  step_option_ = set.duration("--step-time", step_,
                              "computation of a step, forward and backward; 0: assumed, as --list says");
  set.number("--compute-scale", compute_scale_,
             "multiplies the times of the finished buckets; 0: communication alone");
  set.flag("--print-trace", print_trace_, "print what would be played, as --trace takes it, and do nothing");
  set.flag("--list", list_, "list networks and do nothing");
}

void ReplayFlags::add_play(OptionSet& set) {
  set.group("How it is played");
  set.number("-n,--iters", play_.iterations, "timed steps")->check(CLI::Range(1U, kMaxSteps));
  set.number("-w,--warmup", play_.warmup, "steps before them")->check(CLI::Range(0U, kMaxSteps));
  set.size("--buffer-limit", play_.buffer_limit,
           "memory of a worker's gradients; buckets share it where they are more than that");
  set.text("--json", play_.json, "FILE", "results");
  set.text("--csv", play_.csv, "FILE", "results, one line per step");
}

void ReplayFlags::refuse(std::initializer_list<const CLI::Option*> options, const std::string& why) {
  for (const CLI::Option* option : options) {
    if (option->count() > 0)
      throw Failure(bench::kExitUsage, fmt::format("{} means nothing with {}", option->get_name(), why));
  }
}

void ReplayFlags::check() const {
  if (!file_.empty()) {
    refuse({model_option_, step_option_, bucketing_option_, cap_option_, threshold_option_, cycle_option_},
           "--trace");
  }
  if (bucketing_ != "ddp") refuse({cap_option_}, "--bucketing " + bucketing_);
  if (bucketing_ != "horovod") refuse({threshold_option_, cycle_option_}, "--bucketing " + bucketing_);
  if (!(compute_scale_ >= 0 && compute_scale_ <= kMaxScale)) {
    throw Failure(bench::kExitUsage,
                  fmt::format("--compute-scale {} is not from 0 to {}", compute_scale_, kMaxScale));
  }
  constexpr auto kMaxStep = static_cast<Nanos>(bench::kMaxReadyUs) * kMicrosecond;
  if (step_ > kMaxStep) throw Failure(bench::kExitUsage, "--step-time is above 24h");
  if (horovod_.cycle > kMaxStep) throw Failure(bench::kExitUsage, "--cycle-time is above 24h");
}

wire::DType ReplayFlags::dtype() const {
  const auto dtype = wire::parse_dtype(dtype_);
  if (dtype == wire::DType::kF32 || dtype == wire::DType::kBf16 || dtype == wire::DType::kF16) return *dtype;
  throw Failure(bench::kExitUsage, fmt::format("datatype \"{}\" is none of f32, bf16, f16", dtype_));
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
  // PyTorch: who names a cap has it for the first bucket as well.
  if (bucket_cap_ != 0) request.ddp = {.first_cap = bucket_cap_, .cap = bucket_cap_};
  return request;
}

bench::Trace ReplayFlags::trace() const {
  check();
  return bench::value_or_fail(bench::trace_of(request()), bench::kExitUsage);
}

bench::ReplayOptions ReplayFlags::options(const std::vector<std::string>& arguments) const {
  bench::ReplayOptions options = play_;
  options.name = file_.empty() ? model_ : file_;
  options.trace = trace();
  options.dtype = dtype();
  options.arguments = arguments;
  return options;
}

int ReplayFlags::run(const std::vector<std::string>& arguments) const {
  if (list_) {
    std::fputs(bench::model_list(wire::size_of(dtype())).c_str(), stdout);
    return bench::kExitOk;
  }
  if (print_trace_) {
    std::fputs(bench::trace_text(trace()).c_str(), stdout);
    return bench::kExitOk;
  }
  const bench::ReplayOptions options = this->options(arguments);
  if (worker_.is_worker()) return bench::run_replay(options, worker_.worker());
  bench::check_buffer_limit(options.trace.buckets,
                            options.buffer_limit);  // one error instead of one per worker
  return bench::launch(worker_.launch(arguments));
}

}  // namespace

void add_bench_replay(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app = bench.add_subcommand("replay",
                                       "the gradients of training steps, bucketed as frameworks do, with the "
                                       "gaps of computation between them");
  app->footer(
      "The computation is played by waiting. A step begins with its forward pass; the times follow from the "
      "network's arithmetic.\n"
      "  sluice bench replay --model bert-large -d bf16 --compute-scale 0 --workers 4 --reducers 2\n"
      "  sluice bench replay --model resnet-50 --bucketing horovod --print-trace > resnet.trace\n"
      "Exit 2: wrong data.");
  auto flags = std::make_shared<ReplayFlags>(*app);
  app->callback(
      [flags, &chosen, &arguments] { chosen = [flags, &arguments] { return flags->run(arguments); }; });
}

}  // namespace sluice::cli
