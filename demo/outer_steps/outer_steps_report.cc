#include "demo/outer_steps/outer_steps_report.h"

#include <fmt/format.h>

#include "bench/e2e/report/output.h"
#include "bench/e2e/worker/rank_info.h"
#include "config/json.h"
#include "core/clock.h"

namespace sluice::demo {
namespace {

constexpr const char* kSchema = "sluice.demo.outer-steps/1";
constexpr uint64_t kBarWidth = 24;
constexpr uint64_t kMaxLines = 20;  // of progress

double megabytes(uint64_t bytes) {
  return 1e-6 * static_cast<double>(bytes);
}

}  // namespace

OuterStepsReport::OuterStepsReport(const OuterStepsOptions& options, const Dataset& held_out,
                                   uint64_t inner_steps)
    : options_(options),
      held_out_(held_out),
      inner_steps_(inner_steps),
      outer_steps_(div_ceil(inner_steps, uint64_t{options.every})),
      begin_(monotonic_now()) {}

double OuterStepsReport::accuracy_of(Network& network) const {
  return static_cast<double>(network.evaluate(held_out_).correct) / static_cast<double>(held_out_.size());
}

bool OuterStepsReport::is_printed(uint64_t outer_step) const noexcept {
  return outer_step == 1 || outer_step == outer_steps_ || outer_step % div_ceil(outer_steps_, kMaxLines) == 0;
}

void OuterStepsReport::print_header(const bench::WorkerOptions& worker, size_t island_images,
                                    size_t parameters) const {
  bench::print_flushed(fmt::format(
      "handwritten digits (UCI, CC BY 4.0): {} in {} islands, {} images for each island\n"
      "network 64-{}-10, {} parameters; an allreduce inside each island at every step of {} images,\n"
      "an outer step of all islands after every {} steps, in model {}\n",
      bench::workers_text(worker), options_.rule.islands, island_images, options_.training.hidden, parameters,
      options_.training.batch, options_.every, outer_model_name(worker.session)));
}

void OuterStepsReport::before_outer_step(Network& network) {
  if (is_printed(done_ + 1)) island_accuracy_ = accuracy_of(network);
}

void OuterStepsReport::after_outer_step(Network& network, uint64_t version) {
  ++done_;
  seconds_ = 1e-9 * static_cast<double>(monotonic_now() - begin_);
  if (!is_printed(done_)) return;
  accuracy_ = accuracy_of(network);
  const uint64_t bar = kBarWidth * done_ / outer_steps_;
  bench::print_flushed(fmt::format(
      "version {:>4} [{}{}] held-out {:6.2f} % on island 0 alone, {:6.2f} % of {} islands  {:6.2f} s\n",
      version, std::string(bar, '#'), std::string(kBarWidth - bar, '.'), 100 * island_accuracy_,
      100 * accuracy_, options_.rule.islands, seconds_));
}

void OuterStepsReport::finish(const OuterStepsResult& result, size_t parameters) const {
  const TrainingOptions& t = options_.training;
  const OuterRule& rule = options_.rule;
  const uint64_t size = parameters * sizeof(float);
  const uint64_t model_bytes = outer_steps_ * rule.islands * size;
  const uint64_t data_parallel_bytes = inner_steps_ * rule.islands * size;
  const double ratio = static_cast<double>(data_parallel_bytes) / static_cast<double>(model_bytes);
  bench::print_result(fmt::format(
      "\n"
      "held-out accuracy   {:.2f} % ({:.0f} of {} images that were never trained on), version {}\n"
      "weights             {} on {} workers, hash {:016x}\n"
      "inside an island    {:.2f} MB sent by a worker, in {} steps\n"
      "between islands     {:.2f} MB sent to the model by {} islands, in {} outer steps ({:.1f} kB each)\n"
      "data-parallel       {:.2f} MB if each step crossed the islands: {:.1f} times as much\n",
      100 * accuracy_, accuracy_ * static_cast<double>(held_out_.size()), held_out_.size(), result.version,
      result.identical ? "bit-identical" : "DIFFERENT", t.workers * rule.islands, result.hash,
      megabytes(result.island_bytes), inner_steps_, megabytes(model_bytes), rule.islands, outer_steps_,
      1e3 * megabytes(size), megabytes(data_parallel_bytes), ratio));
  const nlohmann::ordered_json json = {{"schema", kSchema},
                                       {"islands", rule.islands},
                                       {"workers", t.workers * rule.islands},
                                       {"every", options_.every},
                                       {"outer_learning_rate", rule.learning_rate},
                                       {"outer_momentum", rule.momentum},
                                       {"epochs", t.epochs},
                                       {"batch", t.batch},
                                       {"hidden", t.hidden},
                                       {"seed", t.seed},
                                       {"held_out_images", held_out_.size()},
                                       {"held_out_accuracy", accuracy_},
                                       {"inner_steps", inner_steps_},
                                       {"outer_steps", outer_steps_},
                                       {"version", result.version},
                                       {"weights_identical", result.identical},
                                       {"weights_hash", fmt::format("{:016x}", result.hash)},
                                       {"island_bytes_per_worker", result.island_bytes},
                                       {"model_bytes", model_bytes},
                                       {"data_parallel_bytes", data_parallel_bytes},
                                       {"data_parallel_ratio", ratio},
                                       {"seconds", seconds_}};
  bench::write_result_file(options_.json, config::json_text(json, 2) + "\n");
}

}  // namespace sluice::demo
