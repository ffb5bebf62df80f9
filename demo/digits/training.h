// Stochastic gradient descent with momentum over a data set whose batches are shared out to n workers.
// Everything but the sum of the shards' gradients is computed the same way by whoever trains, so equal sums
// make equal weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "demo/digits/dataset.h"
#include "demo/digits/network.h"

namespace sluice::demo {

struct TrainingOptions {
  uint32_t workers = 4;
  uint32_t epochs = 20;
  uint32_t batch = 64;  // images a step, over all workers
  uint32_t hidden = 128;
  uint64_t seed = 1;
  float learning_rate = 0.1F;
  float momentum = 0.9F;
};

struct EpochResult {
  uint32_t epoch = 0;        // 1..epochs
  float loss = 0;            // mean over the training images, as met
  float train_accuracy = 0;  // 0..1, as met
};

// Images of worker `rank` in a batch: consecutive, sizes that differ by at most one.
[[nodiscard]] std::span<const uint32_t> shard(std::span<const uint32_t> batch, uint32_t rank,
                                              uint32_t workers);

class Training {
 public:
  // Called with this step's batch; leaves in `total` what the shards of all workers sum to: gradient, then
  // loss and correct.
  using SumShards = std::function<void(std::span<const uint32_t> batch, std::span<float> total)>;

  Training(const Dataset& data, const TrainingOptions& options);

  // Runs one epoch: every image once, in an order drawn from the seed.
  [[nodiscard]] EpochResult run_epoch(const SumShards& sum_shards);

  // One shard's contribution to the total.
  void compute_shard(std::span<const uint32_t> batch, uint32_t rank, std::span<float> out);
  [[nodiscard]] size_t total_size() const noexcept { return network_.parameters().size() + 2; }
  [[nodiscard]] Network& network() noexcept { return network_; }
  [[nodiscard]] const Network& network() const noexcept { return network_; }
  // FNV-1a over the bits of all weights.
  [[nodiscard]] uint64_t weights_hash() const;

 private:
  void step(size_t images);

  const Dataset& data_;
  TrainingOptions options_;
  Network network_;
  Random shuffle_;
  uint32_t epoch_ = 0;
  std::vector<uint32_t> order_;
  std::vector<float> total_;
  std::vector<float> velocity_;
};

// What one process has to do to be n workers: all shards, summed as reducers sum (wire/PROTOCOL.md section
// 7): ranks in groups of eight, in order, then the groups in order, rounding to f32 at each step.
[[nodiscard]] Training::SumShards sum_in_one_process(Training& training, uint32_t workers);

}  // namespace sluice::demo
