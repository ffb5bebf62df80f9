// `sluice demo outer-steps` trains a network on islands of workers: data-parallel inside each, over reducers,
// and between them only by an outer step every few steps (DiLoCo), through a model that the reducers keep.
#pragma once

#include <cstdint>
#include <string>

#include "bench/e2e/worker/worker_session.h"
#include "demo/digits/training.h"
#include "demo/outer_steps/outer_model.h"

namespace sluice::demo {

struct OuterStepsOptions {
  TrainingOptions training;  // of one island: its workers, and its images per step
  OuterRule rule;
  uint32_t every = 10;      // steps of an island between two outer steps
  double min_accuracy = 0;  // required accuracy on the held-out images, 0..1
  std::string json;         // file that rank 0 writes; empty: none
};

// Returns the exit code: 0, or kExitCheckFailed if the weights of two workers differ after the last outer
// step or the accuracy is below min_accuracy. Throws bench::Failure. Rank 0 deletes the model at the end.
[[nodiscard]] int run_outer_steps_worker(const OuterStepsOptions& options,
                                         const bench::WorkerOptions& worker);

}  // namespace sluice::demo
