#include "config/sizing/model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::config {
namespace {

TEST(SizingModel, MatchesThePoolToTheWorkersBandwidth) {
  EXPECT_EQ(reducers_for(5, 100, 32, 1), 16u);  // 512 Gbps for 500
  EXPECT_EQ(reducers_for(8, 100, 32, 1), 25u);  // 800 for 800
  EXPECT_EQ(reducers_for(8, 100, 100, 1), 8u);
  EXPECT_EQ(reducers_for(8, 100, 32, 0.9), 28u);
  EXPECT_EQ(reducers_for(1, 0.1, 1e6, 1), 1u);
  // 0.1 is not exact: rounding must not add a reducer.
  EXPECT_EQ(reducers_for(8, 100, 80, 0.1), 100u);
  EXPECT_EQ(reducers_for(3, 0.1, 0.1, 1), 3u);
}

TEST(SizingModel, ExpressesTrafficInMultiplesOfTheMessage) {
  EXPECT_DOUBLE_EQ(ring_traffic(1), 0);
  EXPECT_DOUBLE_EQ(ring_traffic(2), 1);
  EXPECT_DOUBLE_EQ(ring_traffic(8), 1.75);
  EXPECT_DOUBLE_EQ(ring_traffic(40), 1.95);
  for (const uint64_t workers : {1, 2, 8, 65536}) {
    EXPECT_DOUBLE_EQ(split_time(workers, 1, 1, false).time, 1);
    EXPECT_DOUBLE_EQ(split_time(workers, 1, 1.5, false).time, 1);
    EXPECT_DOUBLE_EQ(split_time(workers, 1, 0.5, false).time, 2);
    EXPECT_EQ(split_time(workers, 1, 0.5, false).co_located_share, 0);
  }
  EXPECT_DOUBLE_EQ(transfer_seconds(1, 1'000'000'000, 8), 1);
}

TEST(SizingModel, SplitsTheDataWithCoLocatedReducers) {
  const SplitTime none = split_time(8, 1, 0, true);
  EXPECT_DOUBLE_EQ(none.time, ring_traffic(8));
  EXPECT_DOUBLE_EQ(none.co_located_share, 1);
  const SplitTime half = split_time(8, 1, 0.5, true);
  EXPECT_NEAR(half.time, 14.0 / 11, 1e-12);
  EXPECT_NEAR(half.co_located_share, 8.0 / 22, 1e-12);
  EXPECT_EQ(split_time(8, 1, 1, true).co_located_share, 0);
  EXPECT_DOUBLE_EQ(split_time(4, 0.75, 0, true).time, 1.6);
  EXPECT_DOUBLE_EQ(split_time(8, 0.25, 0, true).time, 4) << "the slow link, and no more";
}

// Builds the edges of NCCL's double tree like NCCL's btree: a binary tree by lowest set bits below node 0.
// The second tree is mirrored (even n) or shifted by one (odd n). A node sends half a message along each
// edge.
class DoubleTree {
 public:
  explicit DoubleTree(uint64_t nodes) : edges_(nodes, 0) {
    for (uint64_t rank = 1; rank < nodes; ++rank) {
      const uint64_t parent = parent_of(rank, nodes);
      add(rank, parent);
      const auto other = [&](uint64_t r) { return nodes % 2 == 0 ? nodes - 1 - r : (r + 1) % nodes; };
      add(other(rank), other(parent));
    }
  }
  [[nodiscard]] double busiest() const {
    uint64_t max_edges = 0;
    for (const uint64_t count : edges_) max_edges = std::max(max_edges, count);
    return static_cast<double>(max_edges) / 2;
  }

 private:
  static uint64_t parent_of(uint64_t rank, uint64_t nodes) {
    const uint64_t bit = rank & (~rank + 1);
    const uint64_t up = (rank ^ bit) | (bit << 1);
    return up >= nodes ? rank ^ bit : up;
  }
  void add(uint64_t a, uint64_t b) { ++edges_[a], ++edges_[b]; }

  std::vector<uint64_t> edges_;
};

TEST(SizingModel, TreeTrafficIsThatOfTheBusiestNode) {
  EXPECT_DOUBLE_EQ(tree_traffic(1), 0);
  for (uint64_t n = 2; n <= 200; ++n) EXPECT_LE(DoubleTree(n).busiest(), tree_traffic(n)) << n;
  for (const uint64_t n : {2, 3, 4, 8, 9, 64, 200})
    EXPECT_DOUBLE_EQ(DoubleTree(n).busiest(), tree_traffic(n)) << n;
}

TEST(SizingModel, BreaksEvenAtEqualCost) {
  for (const double extra : {0.01, 0.06, 0.3, 0.75}) {
    for (const double speedup : {1.2, 1.75, 2.0}) {
      const auto share = break_even_share(extra, speedup);
      if (!share) continue;
      EXPECT_NEAR((1 + extra) * (1 - *share + *share / speedup), 1, 1e-12);
    }
  }
  EXPECT_FALSE(break_even_share(0.1, 1).has_value());
  EXPECT_FALSE(break_even_share(0.1, 0.5).has_value());
  EXPECT_FALSE(break_even_share(1.11, 1.75).has_value());
  EXPECT_DOUBLE_EQ(break_even_share(0, 1.75).value_or(-1), 0);
}

TEST(SizingModel, NoFlowExceedsItsLimit) {
  EXPECT_EQ(flows_for(12.5, 5), 3u);
  EXPECT_EQ(flows_for(10, 5), 2u);
  EXPECT_EQ(flows_for(0.1, 5), 1u);
}

}  // namespace
}  // namespace sluice::config
