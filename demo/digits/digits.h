// `sluice demo digits`: data-parallel training over reducers, as one worker of n, or in one process that sums
// the same way.
#pragma once

#include <string>

#include "bench/e2e/plugin_allreduce.h"
#include "bench/e2e/worker_session.h"
#include "demo/digits/training.h"

namespace sluice::demo {

struct DigitsOptions {
  TrainingOptions training;
  double min_accuracy = 0;      // of the held-out images, 0..1; below it the exit code is kExitWrongData
  std::string json;             // file of rank 0; empty: none
  bench::PluginOptions plugin;  // `use`: gradients go through the NCCL plugin instead of the client library
};

// Exit codes: 0; kExitWrongData when the weights of two workers differ or the accuracy is too low. Throw
// bench::Failure.
[[nodiscard]] int run_digits_worker(const DigitsOptions& options, const bench::WorkerOptions& worker);
[[nodiscard]] int run_digits_single(const DigitsOptions& options);

}  // namespace sluice::demo
