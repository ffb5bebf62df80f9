#include "nccl_plugin/tuner/pricing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/units.h"

namespace sluice::nccl::tuner {
namespace {

constexpr int kAlgorithms = 7, kProtocols = 3;

struct Table {
  std::array<float, size_t{kAlgorithms} * kProtocols> cost;
  // As NCCL prices an allreduce: CollNet knows Simple only, PAT no allreduce.
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

bool ask(Table& t, const Question& q, const Settings& s = pool()) {
  return price(q, s, t.cost.data(), kAlgorithms, kProtocols);
}

constexpr Question kLarge{.function = kAllReduce, .bytes = 64 * kMiB, .nodes = 4};

TEST(Pricing, MakesTheCheaperCollNetFree) {
  Table chain;
  chain.at(kCollNetDirect, kSimple) = 200;
  EXPECT_TRUE(ask(chain, kLarge));
  EXPECT_EQ(chain.simple(kCollNetChain), 0);
  EXPECT_EQ(chain.simple(kCollNetDirect), 200);
  Table direct;
  EXPECT_TRUE(ask(direct, kLarge));
  EXPECT_EQ(direct.simple(kCollNetDirect), 0);
  EXPECT_EQ(direct.simple(kCollNetChain), 103);
}

TEST(Pricing, LeavesForbiddenEntriesForbidden) {
  Table t;
  t.at(kCollNetDirect, kSimple) = kForbidden;
  EXPECT_TRUE(ask(t, kLarge));
  EXPECT_EQ(t.simple(kCollNetDirect), kForbidden);
  EXPECT_EQ(t.simple(kCollNetChain), 0);
  EXPECT_EQ(t.at(kCollNetChain, kLL), kForbidden);
}

TEST(Pricing, ChangesNothingWhereThereIsNoCollNet) {
  Table t;
  t.at(kCollNetDirect, kSimple) = t.at(kCollNetChain, kSimple) = kForbidden;
  const auto before = t.cost;
  EXPECT_FALSE(ask(t, kLarge));
  EXPECT_EQ(t.cost, before);
}

TEST(Pricing, RulesCollNetOutWhereItLoses) {
  for (const Question& q : {Question{.function = kAllReduce, .bytes = 4 * kKiB, .nodes = 4},
                            Question{.function = kAllReduce, .bytes = 64 * kMiB, .nodes = 2},
                            Question{.function = kAllGather, .bytes = 64 * kMiB, .nodes = 8},
                            Question{.function = kReduceScatter, .bytes = 64 * kMiB, .nodes = 8}}) {
    Table t;
    EXPECT_FALSE(ask(t, q));
    EXPECT_EQ(t.simple(kCollNetDirect), kForbidden);
    EXPECT_EQ(t.simple(kCollNetChain), kForbidden);
    EXPECT_EQ(t.simple(kNvls), kForbidden) << "over several nodes it goes through CollNet";
    EXPECT_GE(t.simple(kRing), 0);
    EXPECT_GE(t.simple(kNvlsTree), 0);
  }
}

TEST(Pricing, LeavesNvlsOfOneNodeAlone) {
  Table t;
  EXPECT_FALSE(ask(t, {.function = kAllReduce, .bytes = kMiB, .nodes = 1}));
  EXPECT_GE(t.simple(kNvls), 0);
}

TEST(Pricing, NeverLeavesNothing) {
  Table t;
  for (const int a : {int{kTree}, int{kRing}, int{kNvlsTree}}) {
    for (int p = 0; p < kProtocols; ++p) t.at(a, p) = kForbidden;
  }
  const auto before = t.cost;
  EXPECT_FALSE(ask(t, {.function = kAllReduce, .bytes = 1, .nodes = 2}));
  EXPECT_EQ(t.cost, before);
}

TEST(Pricing, LeavesOtherCollectivesAlone) {
  for (const int function : {int{kBroadcast}, int{kReduce}, 17}) {
    Table t;
    const auto before = t.cost;
    EXPECT_FALSE(ask(t, {.function = function, .bytes = 64 * kMiB, .nodes = 8}));
    EXPECT_EQ(t.cost, before);
  }
}

TEST(Pricing, FollowsThePolicy) {
  Settings s = pool();
  s.offload = OffloadPolicy::kAlways;
  EXPECT_TRUE(wants_offload({.function = kAllReduce, .bytes = 1, .nodes = 2}, s));
  EXPECT_FALSE(wants_offload({.function = kBroadcast, .bytes = kMiB, .nodes = 4}, s));
  s.offload = OffloadPolicy::kNever;
  EXPECT_FALSE(wants_offload(kLarge, s));
  EXPECT_FALSE(wants_offload(kLarge, Settings())) << "no reducers";
}

TEST(Pricing, LeavesAPoolThatIsNarrowerThanARingAlone) {
  const auto wide = [](size_t nodes, size_t ranks, size_t reducers) {
    return pool_is_wide_enough({.nodes = nodes, .ranks = ranks}, reducers);
  };
  EXPECT_FALSE(wide(4, 4, 2));  // 2 S against 1.5 S
  EXPECT_TRUE(wide(4, 4, 3));   // 1.33 S
  EXPECT_FALSE(wide(8, 8, 4));  // 2 S against 1.75 S
  EXPECT_TRUE(wide(8, 64, 5));  // 1.6 S against 1.97 S
  EXPECT_TRUE(wide(8, 8, 100));
  EXPECT_FALSE(wide(2, 2, 8)) << "nothing is gained at two";
  EXPECT_FALSE(wide(4, 4, 0));
  Settings s = pool();
  s.reducers.resize(2);
  EXPECT_FALSE(wants_offload(kLarge, s));
  s.offload = OffloadPolicy::kAlways;
  EXPECT_TRUE(wants_offload(kLarge, s));
}

TEST(Pricing, TouchesNoTableThatIsTooSmall) {
  std::array<float, 6> small{1, 1, 1, 1, 1, 1};
  EXPECT_FALSE(price(kLarge, pool(), small.data(), 2, 3));
  EXPECT_FALSE(price(kLarge, pool(), small.data(), 3, 2));
  EXPECT_TRUE(std::ranges::all_of(small, [](float c) { return c == 1; }));
}

TEST(ChunkBytes, GrowsWhileEightFillAChannel) {
  const auto chunk = [](uint64_t bytes, int algorithm, int channels, size_t wanted) {
    return chunk_bytes({.function = kAllReduce, .bytes = bytes, .nodes = 4}, algorithm, channels, wanted);
  };
  EXPECT_EQ(chunk(64 * kMiB, kCollNetChain, 2, 128 * kKiB), 512 * kKiB);
  EXPECT_EQ(chunk(4 * kMiB, kCollNetChain, 2, 128 * kKiB), 256 * kKiB);
  EXPECT_EQ(chunk(kMiB, kCollNetDirect, 2, 128 * kKiB), 128 * kKiB);
  EXPECT_EQ(chunk(64 * kMiB, kRing, 2, 128 * kKiB), 128 * kKiB);
  EXPECT_EQ(chunk(64 * kMiB, kCollNetChain, 0, 128 * kKiB), 128 * kKiB);
  EXPECT_EQ(chunk(64 * kMiB, kCollNetChain, 2, 1 * kMiB), 1 * kMiB) << "never smaller than NCCL wants";
}

}  // namespace
}  // namespace sluice::nccl::tuner
