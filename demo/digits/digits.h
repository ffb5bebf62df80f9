// `sluice demo digits` trains a network data-parallel over reducers, as one worker of n, or in a single
// process that sums in the same order.
#pragma once

#include <string>

#include "bench/e2e/allreduce/plugin_allreduce.h"
#include "bench/e2e/worker/worker_session.h"
#include "demo/digits/training.h"

namespace sluice::demo {

struct DigitsOptions {
  TrainingOptions training;
  double min_accuracy = 0;      // required accuracy on the held-out images, 0..1
  std::string json;             // file that rank 0 writes; empty: none
  bench::PluginOptions plugin;  // `use`: reduce through the NCCL plugin, not the client library
};

// Both return the exit code: 0, or kExitCheckFailed if the weights of two workers differ or the accuracy is
// below min_accuracy. They throw bench::Failure.
[[nodiscard]] int run_digits_worker(const DigitsOptions& options, const bench::WorkerOptions& worker);
[[nodiscard]] int run_digits_single(const DigitsOptions& options);

}  // namespace sluice::demo
