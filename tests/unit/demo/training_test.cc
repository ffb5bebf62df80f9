#include "demo/digits/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace sluice::demo {
namespace {

TEST(Shard, PartsCoverTheBatchInOrder) {
  std::vector<uint32_t> batch(29);
  std::iota(batch.begin(), batch.end(), 100U);
  for (uint32_t workers : {1U, 2U, 3U, 7U, 29U, 64U}) {
    std::vector<uint32_t> all;
    size_t min = batch.size();
    size_t max = 0;
    for (uint32_t rank = 0; rank < workers; ++rank) {
      const auto part = shard(batch, rank, workers);
      all.insert(all.end(), part.begin(), part.end());
      min = std::min(min, part.size());
      max = std::max(max, part.size());
    }
    EXPECT_EQ(all, batch) << workers;
    EXPECT_LE(max - min, 1u) << workers;
  }
}

class TrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    auto digits = load_digits();
    ASSERT_TRUE(digits.has_value());
    parts_ = split(*digits);
  }
  uint64_t hash_after(const TrainingOptions& options) {
    Training training(parts_.train, options);
    const auto sum = sum_in_one_process(training, options.workers);
    for (uint32_t e = 0; e < options.epochs; ++e) (void)training.run_epoch(sum);
    return training.weights_hash();
  }
  Split parts_;
};

TEST_F(TrainingTest, ReachesNinetyFivePercentOnHeldOutImages) {
  const TrainingOptions options;
  Training training(parts_.train, options);
  const auto sum = sum_in_one_process(training, options.workers);
  EpochResult last;
  for (uint32_t e = 0; e < options.epochs; ++e) last = training.run_epoch(sum);
  EXPECT_EQ(last.epoch, options.epochs);
  const Score score = training.network().evaluate(parts_.held_out);
  EXPECT_GE(score.correct / static_cast<float>(parts_.held_out.size()), 0.95F);
}

TEST_F(TrainingTest, IsBitIdenticalForTheSameInputOnly) {
  TrainingOptions options;
  options.epochs = 2;
  const uint64_t hash = hash_after(options);
  EXPECT_EQ(hash_after(options), hash);
  TrainingOptions other = options;
  other.seed = 2;
  EXPECT_NE(hash_after(other), hash);
  other = options;
  other.workers = 5;
  EXPECT_NE(hash_after(other), hash) << "sums of other shards round differently";
}

TEST_F(TrainingTest, CallsAfterEachStepWhatMayChangeTheWeights) {
  const TrainingOptions options;
  Training training(parts_.train, options);
  const auto sum = sum_in_one_process(training, options.workers);
  size_t steps = 0;
  (void)training.run_epoch(sum, [&] {
    ++steps;
    std::ranges::fill(training.network().parameters(), 0.0F);
  });
  EXPECT_EQ(steps, (parts_.train.size() + options.batch - 1) / options.batch);
  EXPECT_EQ(std::ranges::count(training.network().parameters(), 0.0F),
            static_cast<std::ptrdiff_t>(training.network().parameters().size()));
}

// The sum must be a balanced binary tree, computed here level by level: neighbors are added, an odd last one
// is carried.
TEST_F(TrainingTest, SumsShardsAsATreeOverTheRanks) {
  TrainingOptions options;
  options.workers = 19;
  Training training(parts_.train, options);
  std::vector<uint32_t> batch(64);
  std::iota(batch.begin(), batch.end(), 0U);
  std::vector<float> total(training.total_size());
  sum_in_one_process(training, options.workers)(batch, total);

  std::vector<std::vector<float>> shards(options.workers, std::vector<float>(training.total_size()));
  for (uint32_t rank = 0; rank < options.workers; ++rank) training.compute_shard(batch, rank, shards[rank]);
  for (size_t i = 0; i < total.size(); ++i) {
    std::vector<float> level;
    for (const auto& shard : shards) level.push_back(shard[i]);
    while (level.size() > 1) {
      std::vector<float> next;
      for (size_t k = 0; k < level.size(); k += 2)
        next.push_back(k + 1 < level.size() ? level[k] + level[k + 1] : level[k]);
      level = next;
    }
    ASSERT_EQ(total[i], level[0]) << i;
  }
}

TEST_F(TrainingTest, TheOrderOfShardsChangesTheBits) {
  TrainingOptions options;
  Training training(parts_.train, options);
  std::vector<uint32_t> batch(64);
  std::iota(batch.begin(), batch.end(), 0U);
  std::vector<float> forwards(training.total_size());
  sum_in_one_process(training, options.workers)(batch, forwards);
  std::vector<float> backwards(training.total_size(), 0.0F);
  std::vector<float> one(training.total_size());
  for (uint32_t rank = options.workers; rank-- > 0;) {
    training.compute_shard(batch, rank, one);
    for (size_t i = 0; i < one.size(); ++i) backwards[i] += one[i];
  }
  EXPECT_NE(forwards, backwards);  // otherwise the tests above could not detect a wrong order
}

}  // namespace
}  // namespace sluice::demo
