#include "nccl_plugin/tuner/cost_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/units.h"

namespace sluice::nccl::tuner {
namespace {

constexpr int kAlgorithms = 7, kProtocols = 3;

struct Table {
  std::array<float, size_t{kAlgorithms} * kProtocols> cost;
  // NCCL's costs of an allreduce: CollNet supports Simple only, PAT supports no allreduce.
  Table() {
    for (int a = 0; a < kAlgorithms; ++a) {
      for (int p = 0; p < kProtocols; ++p)
        at(a, p) =
            a == 6 || (a >= kCollNetDirect && p != kSimple) ? kForbidden : 100.0f + static_cast<float>(a);
    }
  }
  float& at(int a, int p) { return cost[static_cast<size_t>(a * kProtocols + p)]; }
  float simple(int a) { return at(a, kSimple); }
};

Settings pool() {
  Settings s;
  s.reducers.assign(8, {.host = "node"});
  return s;
}

bool adjust(Table& t, const CollectiveQuery& q, const Settings& s = pool()) {
  return adjust_costs(q, s, offload_range(q, s), t.cost.data(), kAlgorithms, kProtocols, false);
}

bool should_offload(const CollectiveQuery& q, const Settings& s) {
  return should_offload(q, s, offload_range(q, s));
}

constexpr CollectiveQuery kLarge{.function = kAllReduce, .bytes = 64 * kMiB, .nodes = 4};

TEST(CostTable, MakesTheCheaperCollNetAlgorithmFree) {
  Table chain;
  chain.at(kCollNetDirect, kSimple) = 200;
  EXPECT_TRUE(adjust(chain, kLarge));
  EXPECT_EQ(chain.simple(kCollNetChain), 0);
  EXPECT_EQ(chain.simple(kCollNetDirect), 200);
  Table direct;
  EXPECT_TRUE(adjust(direct, kLarge));
  EXPECT_EQ(direct.simple(kCollNetDirect), 0);
  EXPECT_EQ(direct.simple(kCollNetChain), 103);
}

TEST(CostTable, LeavesForbiddenEntriesForbidden) {
  Table t;
  t.at(kCollNetDirect, kSimple) = kForbidden;
  EXPECT_TRUE(adjust(t, kLarge));
  EXPECT_EQ(t.simple(kCollNetDirect), kForbidden);
  EXPECT_EQ(t.simple(kCollNetChain), 0);
  EXPECT_EQ(t.at(kCollNetChain, kLL), kForbidden);
}

TEST(CostTable, ChangesNothingWithoutCollNet) {
  Table t;
  t.at(kCollNetDirect, kSimple) = t.at(kCollNetChain, kSimple) = kForbidden;
  const auto before = t.cost;
  EXPECT_FALSE(adjust(t, kLarge));
  EXPECT_EQ(t.cost, before);
}

TEST(CostTable, ExcludesCollNetWhereItIsSlower) {
  for (const CollectiveQuery& q :
       {CollectiveQuery{.function = kAllReduce, .bytes = 4 * kKiB, .nodes = 4},
        CollectiveQuery{.function = kAllReduce, .bytes = 64 * kMiB, .nodes = 2},
        CollectiveQuery{.function = kAllGather, .bytes = 64 * kMiB, .nodes = 8},
        CollectiveQuery{.function = kReduceScatter, .bytes = 64 * kMiB, .nodes = 8}}) {
    Table t;
    EXPECT_FALSE(adjust(t, q));
    EXPECT_EQ(t.simple(kCollNetDirect), kForbidden);
    EXPECT_EQ(t.simple(kCollNetChain), kForbidden);
    EXPECT_EQ(t.simple(kNvls), kForbidden) << "over several nodes NVLS uses CollNet";
    EXPECT_GE(t.simple(kRing), 0);
    EXPECT_GE(t.simple(kNvlsTree), 0);
  }
}

TEST(CostTable, KeepsNvlsWithinOneNode) {
  Table t;
  EXPECT_FALSE(adjust(t, {.function = kAllReduce, .bytes = kMiB, .nodes = 1}));
  EXPECT_GE(t.simple(kNvls), 0);
}

TEST(CostTable, KeepsTheOnlyPossibleAlgorithms) {
  Table t;
  for (const int a : {int{kTree}, int{kRing}, int{kNvlsTree}}) {
    for (int p = 0; p < kProtocols; ++p) t.at(a, p) = kForbidden;
  }
  const auto before = t.cost;
  EXPECT_FALSE(adjust(t, {.function = kAllReduce, .bytes = 1, .nodes = 2}));
  EXPECT_EQ(t.cost, before);
}

TEST(CostTable, KeepsOtherCollectives) {
  for (const int function : {int{kBroadcast}, int{kReduce}, 17}) {
    Table t;
    const auto before = t.cost;
    EXPECT_FALSE(adjust(t, {.function = function, .bytes = 64 * kMiB, .nodes = 8}));
    EXPECT_EQ(t.cost, before);
  }
}

TEST(CostTable, FollowsThePolicy) {
  Settings s = pool();
  s.offload = OffloadPolicy::kAlways;
  EXPECT_TRUE(should_offload({.function = kAllReduce, .bytes = 1, .nodes = 2}, s));
  EXPECT_FALSE(should_offload({.function = kBroadcast, .bytes = kMiB, .nodes = 4}, s));
  s.offload = OffloadPolicy::kNever;
  EXPECT_FALSE(should_offload(kLarge, s));
  EXPECT_FALSE(should_offload(kLarge, Settings())) << "no reducers";
}

TEST(CostTable, DoesNotOffloadToAPoolSlowerThanARing) {
  const auto wide = [](size_t nodes, size_t ranks, size_t reducers) {
    return pool_is_wide_enough({.nodes = nodes, .ranks = ranks}, reducers);
  };
  EXPECT_FALSE(wide(4, 4, 2));  // 2 S against 1.5 S
  EXPECT_TRUE(wide(4, 4, 3));   // 1.33 S
  EXPECT_FALSE(wide(8, 8, 4));  // 2 S against 1.75 S
  EXPECT_TRUE(wide(8, 64, 5));  // 1.6 S against 1.97 S
  EXPECT_TRUE(wide(8, 8, 100));
  EXPECT_FALSE(wide(2, 2, 8)) << "no gain with two nodes";
  EXPECT_FALSE(wide(4, 4, 0));
  Settings s = pool();
  s.reducers.resize(2);
  s.colocated = engine::ColocationMode::kOff;
  EXPECT_FALSE(should_offload(kLarge, s));
  s.offload = OffloadPolicy::kAlways;
  EXPECT_TRUE(should_offload(kLarge, s));
}

TEST(CostTable, CountsWhatCoLocatedReducersSum) {
  Settings s = pool();
  const auto range_of = [&s](size_t nodes, size_t ranks, size_t reducers) {
    s.reducers.resize(reducers);
    for (auto& r : s.reducers) r.host = "node";
    return offload_range({.nodes = nodes, .ranks = ranks}, s);
  };
  const OffloadRange half = range_of(8, 8, 4);  // 1.273 S against 1.75 S; the pool alone 2 S
  EXPECT_TRUE(half.pays);
  EXPECT_EQ(half.max_bytes, UINT64_MAX);
  EXPECT_NEAR(half.colocated_share, 8 * 4.0 / (64 + 4 * 6), 1e-6);
  EXPECT_TRUE(should_offload({.bytes = 64 * kMiB, .nodes = 8, .ranks = 8}, s));
  const OffloadRange full = range_of(8, 8, 8);
  EXPECT_TRUE(full.pays);
  EXPECT_EQ(full.colocated_share, 0);
  EXPECT_FALSE(range_of(2, 16, 1).pays) << "two nodes use no co-located reducer";
  EXPECT_EQ(range_of(2, 16, 1).colocated_share, 0);
  s.colocated = engine::ColocationMode::kAlways;
  EXPECT_TRUE(range_of(2, 16, 1).pays);
  s.colocated = engine::ColocationMode::kOff;
  EXPECT_FALSE(range_of(8, 8, 4).pays);
  s.colocated = engine::ColocationMode::kAuto;
  s.reducers.assign(4, {.host = "127.0.0.1"});
  EXPECT_FALSE(offload_range({.nodes = 8, .ranks = 8}, s).pays) << "a pool on the node itself";
  s.reducers.assign(2, {.host = "node", .port = 1, .weight = 4});
  EXPECT_EQ(offload_range({.nodes = 8, .ranks = 8}, s).colocated_share, 0);
}

TEST(CostTable, OffloadsMediumSizesWhereNoReducerIsDedicated) {
  Settings s;
  s.no_pool = true;
  const OffloadRange equal = offload_range({.nodes = 4, .ranks = 4}, s);  // 1.5 S, like the ring
  EXPECT_TRUE(equal.pays);
  EXPECT_EQ(equal.max_bytes, kMiB);
  EXPECT_NEAR(equal.colocated_share, 1, 1e-9);
  EXPECT_TRUE(should_offload({.bytes = kMiB, .nodes = 4, .ranks = 4}, s));
  EXPECT_FALSE(should_offload({.bytes = kMiB + 1, .nodes = 4, .ranks = 4}, s));
  EXPECT_FALSE(should_offload({.bytes = 255 * kKiB, .nodes = 4, .ranks = 4}, s));
  EXPECT_EQ(offload_range({.nodes = 4, .ranks = 32}, s).max_bytes, UINT64_MAX) << "1.94 S for NCCL's ring";
  s.min_bytes = 2 * kMiB;
  EXPECT_FALSE(offload_range({.nodes = 4, .ranks = 4}, s).pays);
  s.colocated = engine::ColocationMode::kOff;
  EXPECT_FALSE(s.can_offload());
  EXPECT_FALSE(should_offload({.bytes = kMiB, .nodes = 4, .ranks = 32}, s));
}

TEST(CostTable, DoesNotEditATableThatIsTooSmall) {
  std::array<float, 6> small{1, 1, 1, 1, 1, 1};
  const OffloadRange range = offload_range(kLarge, pool());
  EXPECT_FALSE(adjust_costs(kLarge, pool(), range, small.data(), 2, 3, false));
  EXPECT_FALSE(adjust_costs(kLarge, pool(), range, small.data(), 3, 2, false));
  EXPECT_TRUE(std::ranges::all_of(small, [](float c) { return c == 1; }));
}

TEST(ChunkBytes, GrowsWhileAChannelHasEightChunks) {
  const auto chunk = [](uint64_t bytes, int algorithm, int channels, size_t proposed) {
    return chunk_bytes({.function = kAllReduce, .bytes = bytes, .nodes = 4}, algorithm, channels, proposed);
  };
  EXPECT_EQ(chunk(64 * kMiB, kCollNetChain, 2, 128 * kKiB), 512 * kKiB);
  EXPECT_EQ(chunk(4 * kMiB, kCollNetChain, 2, 128 * kKiB), 256 * kKiB);
  EXPECT_EQ(chunk(kMiB, kCollNetDirect, 2, 128 * kKiB), 128 * kKiB);
  EXPECT_EQ(chunk(64 * kMiB, kRing, 2, 128 * kKiB), 128 * kKiB);
  EXPECT_EQ(chunk(64 * kMiB, kCollNetChain, 0, 128 * kKiB), 128 * kKiB);
  EXPECT_EQ(chunk(64 * kMiB, kCollNetChain, 2, 1 * kMiB), 1 * kMiB) << "never smaller than NCCL's proposal";
}

}  // namespace
}  // namespace sluice::nccl::tuner
