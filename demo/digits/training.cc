#include "demo/digits/training.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

namespace sluice::demo {
namespace {}  // namespace

std::span<const uint32_t> shard(std::span<const uint32_t> batch, uint32_t rank, uint32_t workers) {
  const size_t begin = batch.size() * rank / workers;
  const size_t end = batch.size() * (rank + 1) / workers;
  return batch.subspan(begin, end - begin);
}

Training::Training(const Dataset& data, const TrainingOptions& options)
    : data_(data),
      options_(options),
      network_(options.hidden, options.seed),
      shuffle_(~options.seed),
      order_(data.size()),
      total_(total_size()),
      velocity_(network_.parameters().size(), 0.0F) {
  std::iota(order_.begin(), order_.end(), 0U);
}

EpochResult Training::run_epoch(const SumShards& sum_shards, const AfterStep& after_step) {
  for (size_t i = order_.size(); i > 1; --i)
    std::swap(order_[i - 1], order_[shuffle_.below(i)]);  // Fisher-Yates shuffle
  double loss = 0;
  double correct = 0;
  for (size_t at = 0; at < order_.size(); at += options_.batch) {
    const auto batch =
        std::span<const uint32_t>(order_).subspan(at, std::min<size_t>(options_.batch, order_.size() - at));
    sum_shards(batch, total_);
    loss += total_[total_.size() - 2];
    correct += total_[total_.size() - 1];
    step(batch.size());
    if (after_step) after_step();
  }
  const auto images = static_cast<double>(order_.size());
  return {.epoch = ++epoch_,
          .loss = static_cast<float>(loss / images),
          .train_accuracy = static_cast<float>(correct / images)};
}

void Training::compute_shard(std::span<const uint32_t> batch, uint32_t rank, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  const Score score =
      network_.add_gradient(data_, shard(batch, rank, options_.workers), out.first(out.size() - 2));
  out[out.size() - 2] = score.loss;
  out[out.size() - 1] = score.correct;
}

void Training::step(size_t images) {
  const std::span<float> weights = network_.parameters();
  const float scale = 1.0F / static_cast<float>(images);
  for (size_t i = 0; i < weights.size(); ++i) {
    velocity_[i] = options_.momentum * velocity_[i] + total_[i] * scale;
    weights[i] -= options_.learning_rate * velocity_[i];
  }
}

uint64_t Training::weights_hash() const {
  uint64_t hash = 0xcbf29ce484222325U;
  for (float weight : network_.parameters()) {
    const auto bits = std::bit_cast<uint32_t>(weight);
    for (unsigned shift = 0; shift < 32; shift += 8)
      hash = (hash ^ ((bits >> shift) & 0xff)) * 0x100000001b3U;
  }
  return hash;
}

namespace {

// Overwrites `sum` with the tree over the shards of ranks first .. first + n - 1: the largest power of two
// below n on the left.
void sum_ranks(Training& training, std::span<const uint32_t> batch, uint32_t first, uint32_t n,
               std::span<float> sum) {
  if (n == 1) return training.compute_shard(batch, first, sum);
  const uint32_t left = std::bit_floor(n - 1);
  sum_ranks(training, batch, first, left, sum);
  std::vector<float> right(sum.size());
  sum_ranks(training, batch, first + left, n - left, right);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
}

}  // namespace

Training::SumShards sum_in_one_process(Training& training, uint32_t workers) {
  return [&training, workers](std::span<const uint32_t> batch, std::span<float> total) {
    sum_ranks(training, batch, 0, workers, total);
  };
}

}  // namespace sluice::demo
