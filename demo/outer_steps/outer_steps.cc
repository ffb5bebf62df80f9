#include "demo/outer_steps/outer_steps.h"

#include <optional>
#include <vector>

#include "bench/e2e/process/exit_codes.h"
#include "core/units.h"
#include "demo/outer_steps/island.h"
#include "demo/outer_steps/island_weights.h"
#include "demo/outer_steps/outer_steps_report.h"

namespace sluice::demo {
namespace {

// Class ModelRemoval deletes the model of the run at its end, also after an error.
class ModelRemoval {
 public:
  explicit ModelRemoval(const bench::WorkerOptions& worker) : worker_(worker) {}
  ModelRemoval(const ModelRemoval&) = delete;
  ModelRemoval& operator=(const ModelRemoval&) = delete;
  ~ModelRemoval() { remove_outer_model(worker_, worker_.session); }

 private:
  const bench::WorkerOptions& worker_;
};

// Trains with the workers of one island, and with the other islands by outer steps. Sets the version and the
// bytes that this worker sent.
void train(const OuterStepsOptions& options, const Island& island, Training& training, uint64_t inner_steps,
           OuterModel* model, OuterStepsReport* report, OuterStepsResult& result) {
  bench::WorkerSession session(island.session);
  IslandWeights weights(training.network().parameters(), session, model);
  std::vector<float> own(training.total_size());
  session.register_memory(own.data(), own.size() * sizeof(float));
  const auto sum_in_island = [&](std::span<const uint32_t> batch, std::span<float> total) {
    training.compute_shard(batch, island.session.rank, own);
    session.allreduce(own.data(), total.data(), own.size(), wire::DType::kF32, wire::Op::kSum);
  };
  uint64_t done = 0;
  const auto after_step = [&] {
    if (++done % options.every != 0 && done != inner_steps) return;
    if (report != nullptr) report->before_outer_step(training.network());
    weights.step();
    if (report != nullptr) report->after_outer_step(training.network(), weights.version());
  };
  for (uint32_t e = 0; e < options.training.epochs; ++e) (void)training.run_epoch(sum_in_island, after_step);
  result.version = weights.version();
  result.island_bytes = session.stats().wire_bytes_out;
  session.close();
}

// Compares all workers, in a session of all islands that only this report needs.
void compare(const bench::WorkerOptions& worker, OuterStepsResult& result) {
  bench::WorkerSession session(worker);
  result.identical =
      session.reduce(result.hash, wire::Op::kMin) == session.reduce(result.hash, wire::Op::kMax);
  result.island_bytes = session.reduce(result.island_bytes, wire::Op::kMax);
  session.close();
}

}  // namespace

int run_outer_steps_worker(const OuterStepsOptions& options, const bench::WorkerOptions& worker) {
  const Island island = island_of(worker, options.rule.islands);
  const Split parts = split(bench::value_or_fail(load_digits(), bench::kExitFailure));
  const Dataset images = images_of(parts.train, island.index, options.rule.islands);
  Training training(images, options.training);
  const size_t parameters = training.network().parameters().size();
  const uint64_t inner_steps =
      uint64_t{options.training.epochs} * div_ceil(images.size(), size_t{options.training.batch});

  std::optional<ModelRemoval> removal;
  std::optional<OuterModel> model;
  if (island.is_leader()) {
    model.emplace(worker, island.index);
    model->create(outer_model_name(worker.session), options.rule, training.network().parameters());
  }
  std::optional<OuterStepsReport> report;
  if (worker.rank == 0) {
    removal.emplace(worker);
    report.emplace(options, parts.held_out, inner_steps);
    report->print_header(worker, images.size(), parameters);
  }
  OuterStepsResult result;
  train(options, island, training, inner_steps, model ? &*model : nullptr, report ? &*report : nullptr,
        result);
  result.hash = training.weights_hash();
  compare(worker, result);
  if (!report) return result.identical ? bench::kExitOk : bench::kExitCheckFailed;
  report->finish(result, parameters);
  return result.identical && report->is_accurate() ? bench::kExitOk : bench::kExitCheckFailed;
}

}  // namespace sluice::demo
