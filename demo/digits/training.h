// Class Training runs stochastic gradient descent with momentum; each batch is divided into shards for n
// workers. All workers compute everything but the sum over the shards in the same way, so equal sums yield
// equal weights.
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
  uint32_t batch = 64;  // images per step of all workers
  uint32_t hidden = 128;
  uint64_t seed = 1;
  float learning_rate = 0.1F;
  float momentum = 0.9F;
};

struct EpochResult {
  uint32_t epoch = 0;        // 1..epochs
  float loss = 0;            // mean over the training images during the epoch
  float train_accuracy = 0;  // 0..1, during the epoch
};

// Returns the consecutive images of worker `rank` in a batch. The sizes of the shards differ by at most one.
[[nodiscard]] std::span<const uint32_t> shard(std::span<const uint32_t> batch, uint32_t rank,
                                              uint32_t workers);

class Training {
 public:
  // Sets `total` to the sum of the shards of all workers for a batch: the gradient, then loss and correct.
  using SumShards = std::function<void(std::span<const uint32_t> batch, std::span<float> total)>;
  // May change the weights of the network.
  using AfterStep = std::function<void()>;

  Training(const Dataset& data, const TrainingOptions& options);

  // Trains once on every image, in a random order that depends on the seed. Calls `after_step`, if any, after
  // each batch.
  [[nodiscard]] EpochResult run_epoch(const SumShards& sum_shards, const AfterStep& after_step = {});

  // Computes the contribution of one shard.
  void compute_shard(std::span<const uint32_t> batch, uint32_t rank, std::span<float> out);
  [[nodiscard]] size_t total_size() const noexcept { return network_.parameters().size() + 2; }
  [[nodiscard]] Network& network() noexcept { return network_; }
  [[nodiscard]] const Network& network() const noexcept { return network_; }
  // Returns the FNV-1a hash of the bits of all parameters.
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

// Returns a function that computes and sums the shards of all workers in one process, in the order of
// reducers (docs/reference/protocol.md section 7): a balanced binary tree over the ranks, with rounding to
// f32 at each step.
[[nodiscard]] Training::SumShards sum_in_one_process(Training& training, uint32_t workers);

}  // namespace sluice::demo
