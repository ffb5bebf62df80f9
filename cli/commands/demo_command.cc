// Implements `sluice demo`.
#include <memory>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/launcher.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"
#include "demo/digits/digits.h"

namespace sluice::cli {
namespace {

struct DigitsFlags {
  WorkerFlags worker{4};
  demo::DigitsOptions options;
  bool single = false;
};

int run_digits(const DigitsFlags& flags, const std::vector<std::string>& arguments) {
  demo::DigitsOptions options = flags.options;
  demo::TrainingOptions& t = options.training;
  t.workers = flags.worker.workers();
  if (t.workers == 0 || t.batch == 0 || t.hidden == 0) {
    throw bench::Failure(bench::kExitUsage, "--workers, --batch and --hidden must be greater than 0");
  }
  if (options.plugin.use)
    flags.worker.require_own_hosts("--through-plugin", "NCCL sums inside a host itself");
  if (flags.single) return demo::run_digits_single(options);
  if (!flags.worker.is_worker()) return bench::launch(flags.worker.launch(arguments));
  return demo::run_digits_worker(options, flags.worker.worker());
}

}  // namespace

void add_demo_commands(CLI::App& program, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* demo = program.add_subcommand("demo", "run real training jobs over reducers");
  demo->require_subcommand(1);
  CLI::App* app =
      demo->add_subcommand("digits", "train a small network on handwritten digits, data-parallel");
  app->footer(
      "Workers compute gradients on their shards, allreduce them through the reducers, and apply them. With "
      "the same --seed and --workers, the weights are bitwise identical for any number of reducers and with "
      "--single.\n"
      "Exit 2: weights differ, or accuracy below --min-accuracy.");
  auto flags = std::make_shared<DigitsFlags>();
  demo::TrainingOptions& t = flags->options.training;
  OptionSet set(*app);
  set.group("Training");
  set.number("--epochs", t.epochs, "passes over all images");
  set.number("--batch", t.batch, "images per step, distributed over the workers");
  set.number("--hidden", t.hidden, "units of the hidden layer");
  set.number("--seed", t.seed, "seed of the initial weights and the image order");
  set.number("--learning-rate", t.learning_rate, "factor of the mean gradient");
  set.number("--momentum", t.momentum, "factor of the previous step, 0..1");
  set.number("--min-accuracy", flags->options.min_accuracy,
             "exit 2 below this accuracy on held-out images, 0..1");
  set.flag("--single", flags->single,
           "use no reducers: one process computes all shards and sums them in the order of the reducers");
  set.flag(
      "--through-plugin", flags->options.plugin.use,
      "send gradients through the NCCL plugin, called like NCCL calls it, instead of the client library");
  set.text("--plugin", flags->options.plugin.file, "FILE",
           "path of the plugin; default: in the folder of this program");
  set.group("Output");
  set.output_file(
      "--json", flags->options.json,
      "write results as JSON: held_out_accuracy, weights_identical, weights_hash, bytes_reduced, ...");
  flags->worker.add_to(set);
  run_when_selected(*app, chosen, flags,
                    [&arguments](const DigitsFlags& f) { return run_digits(f, arguments); });
  add_outer_steps_command(*demo, chosen, arguments);
}

}  // namespace sluice::cli
