// Class IslandWeights makes the outer steps of one island, for each of its workers: the leader pushes what
// the island has changed since the last outer step, loads the new version, and broadcasts it to the island.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/e2e/worker/worker_session.h"
#include "demo/outer_steps/outer_model.h"

namespace sluice::demo {

class IslandWeights {
 public:
  // `weights` are those that the worker trains. `model` is null for all but the leader. Both and `session`
  // must outlive this object. Loads the current version; collective in the island, as step() is.
  IslandWeights(std::span<float> weights, bench::WorkerSession& session, OuterModel* model);

  // Ends when all islands have pushed. Then all workers of all islands have the same weights.
  void step();

  // The version that the weights came from. Of the leader only.
  [[nodiscard]] uint64_t version() const noexcept { return version_; }

 private:
  void load();

  std::span<float> weights_;
  bench::WorkerSession& session_;
  OuterModel* model_;
  std::vector<float> start_;  // the version that the island started from
  uint64_t version_ = 0;
};

}  // namespace sluice::demo
