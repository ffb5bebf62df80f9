#include "demo/outer_steps/island_weights.h"

#include <algorithm>

namespace sluice::demo {

IslandWeights::IslandWeights(std::span<float> weights, bench::WorkerSession& session, OuterModel* model)
    : weights_(weights), session_(session), model_(model), start_(weights.begin(), weights.end()) {
  load();
}

void IslandWeights::step() {
  if (model_ != nullptr) {
    // The weights of the leader are those of all workers of the island, so its displacement is their mean.
    // Its sign is that of a gradient: the rule subtracts it.
    for (size_t i = 0; i < start_.size(); ++i) start_[i] -= weights_[i];
    version_ = model_->push(start_, version_);
  }
  load();
}

void IslandWeights::load() {
  if (model_ != nullptr) version_ = model_->pull(start_, version_);
  session_.wait(session_.start_broadcast(start_.data(), start_.size(), wire::DType::kF32, 0));
  std::copy(start_.begin(), start_.end(), weights_.begin());
}

}  // namespace sluice::demo
