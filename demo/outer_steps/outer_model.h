// Class OuterModel keeps the weights that islands share: a model of the reducers, of which each outer step
// makes a version (sluice/store.h). Functions throw Failure.
#pragma once

#include <sluice/store.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bench/e2e/worker/worker_session.h"

namespace sluice::demo {

// A step of Nesterov's momentum by the mean displacement of the islands (DiLoCo, arXiv:2311.08105).
struct OuterRule {
  uint32_t islands = 2;
  double learning_rate = 0.7;
  double momentum = 0.9;
};

class OuterModel {
 public:
  // Connects to a reducer of the pool. Failure: kExitUnavailable, also if the reducers keep no models.
  // `timeout_ms` is also that of all waits for other islands; 0: the default of the library.
  explicit OuterModel(const bench::WorkerOptions& pool, uint32_t island = 0, uint32_t timeout_ms = 0);

  // Creates the model with `weights` as its version 0, or opens it if another island has created it.
  void create(const std::string& name, const OuterRule& rule, std::span<const float> weights);
  // Pushes how far the island has moved from version `base`, and waits for the outer step: for the pushes of
  // all islands. Returns the version that the step made.
  [[nodiscard]] uint64_t push(std::span<const float> displacement, uint64_t base);
  // Copies the current version, which is `at_least` or later, to `weights`. Returns its number.
  uint64_t pull(std::span<float> weights, uint64_t at_least);
  // Deletes a model; does nothing if there is none.
  void remove(const std::string& name);

 private:
  struct StoreDeleter {
    void operator()(sluice_store* store) const noexcept { sluice_store_close(store); }
  };
  std::unique_ptr<sluice_store, StoreDeleter> store_;
};

// Returns the model of a run, which no other run has: the session id is random.
[[nodiscard]] std::string outer_model_name(const std::string& session);

// Deletes the model of a run. Logs a warning if that is impossible.
void remove_outer_model(const bench::WorkerOptions& pool, const std::string& session) noexcept;

}  // namespace sluice::demo
