// Implements `sluice demo outer-steps`.
#include <fmt/format.h>

#include <memory>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/launcher.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"
#include "demo/outer_steps/outer_steps.h"

namespace sluice::cli {
namespace {

using bench::Failure;

constexpr uint32_t kMaxIslands = 64;
constexpr double kBelowOne = 0.999999;

struct OuterStepsFlags {
  WorkerFlags worker{4, "1"};
  demo::OuterStepsOptions options;
};

// Starts the workers, and a reducer that keeps models if none is named.
int launch_outer_steps(const WorkerFlags& flags, const std::vector<std::string>& arguments) {
  bench::LaunchOptions job = flags.launch(arguments);
  if (job.session.empty()) job.session = bench::random_session_id();
  if (job.connect.empty()) {
    if (job.pool.reducers != 1) {
      throw Failure(bench::kExitUsage,
                    fmt::format("--reducers {}: this command starts 1 reducer. Several that keep models need "
                                "etcd: start them with --state and --coordinator, and name them here",
                                job.pool.reducers));
    }
    const auto folder = bench::value_or_fail(bench::TemporaryDirectory::make(), bench::kExitFailure);
    job.pool.state = folder.path();
    return bench::launch(job);
  }
  const bench::WorkerOptions client = flags.client();
  (void)demo::OuterModel(client);  // reports reducers that keep no models once, not by each worker
  const int code = bench::launch(job);
  // A worker that was killed has deleted nothing.
  if (code != bench::kExitOk) demo::remove_outer_model(client, job.session);
  return code;
}

int run_outer_steps(const OuterStepsFlags& flags, const std::vector<std::string>& arguments) {
  demo::OuterStepsOptions options = flags.options;
  const uint32_t islands = options.rule.islands;
  const uint32_t workers = flags.worker.workers();
  if (workers == 0 || workers % islands != 0) {
    throw Failure(bench::kExitUsage,
                  fmt::format("--workers {}: expected a multiple of --islands {}, because the workers are "
                              "divided equally",
                              workers, islands));
  }
  options.training.workers = workers / islands;
  flags.worker.require_reducers("demo outer-steps");
  if (!flags.worker.is_worker()) return launch_outer_steps(flags.worker, arguments);
  return demo::run_outer_steps_worker(options, flags.worker.worker());
}

}  // namespace

void add_outer_steps_command(CLI::App& demo, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app = demo.add_subcommand(
      "outer-steps", "train the digits on islands of workers that exchange weights every few steps (DiLoCo)");
  app->footer(
      "An island is a group of workers with a fast network, such as one data center. Its workers allreduce "
      "their gradients at every step. The islands train on different images, and every few steps each pushes "
      "how far its weights have moved to a model that the reducers keep. The mean of these moves makes an "
      "outer step, with Nesterov momentum, and all workers load the result.\n"
      "--workers counts the workers of all islands together. Running reducers must have --state "
      "(docs/guides/models.md); without --reducers a reducer with a temporary folder is started. The model "
      "is "
      "deleted at the end.\n"
      "Exit 2: weights differ after the last outer step, or accuracy below --min-accuracy.");
  auto flags = std::make_shared<OuterStepsFlags>();
  demo::OuterStepsOptions& options = flags->options;
  demo::TrainingOptions& t = options.training;
  t.batch = 32;
  t.learning_rate = 0.03F;  // less than in `digits`: with momentum, outer steps go 7 times as far as islands
  OptionSet set(*app);
  set.group("Islands");
  set.number("--islands", options.rule.islands, {2, kMaxIslands}, "groups of equally many workers");
  set.number("--every", options.every, {.min = 1}, "steps of an island between two outer steps");
  set.number("--outer-learning-rate", options.rule.learning_rate, {0, 1e6},
             "factor of the islands' mean move");
  set.number("--outer-momentum", options.rule.momentum, {0, kBelowOne}, "factor of the previous outer step");
  set.group("Training");
  set.number("--epochs", t.epochs, {.min = 1}, "passes of an island over its images");
  set.number("--batch", t.batch, {.min = 1}, "images per step of an island, distributed over its workers");
  set.number("--hidden", t.hidden, {.min = 1}, "units of the hidden layer");
  set.number("--seed", t.seed, "seed of the initial weights and the image order");
  set.number("--learning-rate", t.learning_rate, "factor of the mean gradient of an island");
  set.number("--momentum", t.momentum, "factor of the previous step, 0..1");
  set.number("--min-accuracy", options.min_accuracy, "exit 2 below this accuracy on held-out images, 0..1");
  set.group("Output");
  set.output_file(
      "--json", options.json,
      "write results as JSON: held_out_accuracy, weights_identical, model_bytes, data_parallel_ratio, ...");
  flags->worker.add_to(set);
  run_when_selected(*app, chosen, flags,
                    [&arguments](const OuterStepsFlags& f) { return run_outer_steps(f, arguments); });
}

}  // namespace sluice::cli
