#include "nccl_plugin/tuner/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "nccl_plugin/host/nccl_release.h"
#include "nccl_plugin/tuner/cost_table.h"

namespace sluice::nccl::tuner {
namespace {

using testing::HasSubstr;
using testing::Not;

std::map<std::string, std::string> variables;
const char* variable(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

void drop_line(int, unsigned long, const char*, int, const char*, ...) {}

class OffloadVerdict : public testing::Test {
 protected:
  void SetUp() override {
    variables = {{"NCCL_COLLNET_ENABLE", "1"}};
    capabilities.net = capabilities.collnet = {Device{}};
    settings.reducers.resize(8);
  }
  [[nodiscard]] Verdict decided() const { return decide(facts, settings, capabilities, &variable); }
  // The reason, of which the text must name the remedy.
  void expect(OffReason reason, const char* remedy) const {
    const Verdict verdict = decided();
    EXPECT_EQ(verdict.reason, reason) << verdict.text;
    EXPECT_THAT(verdict.text, HasSubstr(remedy));
  }
  [[nodiscard]] bool is_early() const { return decide_early(facts, settings, capabilities).has_value(); }

  Settings settings;
  Capabilities capabilities;
  OffloadFacts facts = [] {
    OffloadFacts f;
    f.ranks = 32;
    f.nodes = 4;
    f.release = 22809;
    f.has_collnet = true;
    return f;
  }();
};

TEST_F(OffloadVerdict, IsOnFromASize) {
  EXPECT_FALSE(is_early());
  expect(OffReason::kNone, "256 KiB and more");
  settings.offload = OffloadPolicy::kAlways;
  settings.reducers.resize(1);
  facts.nodes = 2;
  expect(OffReason::kNone, "any size");
}

TEST_F(OffloadVerdict, NamesTheShareOfCoLocatedReducers) {
  const auto reducers = [this] {
    return reducers_text(settings, offload_range({.nodes = facts.nodes, .ranks = facts.ranks}, settings));
  };
  EXPECT_EQ(reducers(), "8 reducers");
  settings.reducers.resize(2);
  expect(OffReason::kNone, "256 KiB and more");
  EXPECT_EQ(reducers(), "2 reducers, 40 % co-located");
  settings.reducers.clear();
  settings.no_pool = true;
  expect(OffReason::kNone, "256 KiB and more");
  EXPECT_EQ(reducers(), "no dedicated reducers, 100 % co-located");
  facts.ranks = 4;
  expect(OffReason::kNone, "256 to 1024 KiB");
  settings.min_bytes = 2 * kMiB;
  expect(OffReason::kPoolTooNarrow, "no dedicated reducers, 100 % co-located, 4 nodes");
  EXPECT_TRUE(is_early());
}

TEST_F(OffloadVerdict, IsOffEarlyForTheFirstCause) {
  settings.reducers.resize(1);
  settings.colocated = engine::ColocationMode::kOff;
  expect(OffReason::kPoolTooNarrow, "add reducers");
  EXPECT_TRUE(is_early());
  facts.nodes = 2;
  expect(OffReason::kTooFewNodes, "SLUICE_MIN_NODES");
  EXPECT_TRUE(is_early());
  capabilities.collnet.clear();
  capabilities.off_reason = OffReason::kRdmaActive;
  capabilities.reason = "RDMA device mlx5_0 is active; set SLUICE_NET=always";
  expect(OffReason::kRdmaActive, "SLUICE_NET=always");
  EXPECT_TRUE(is_early());
  settings.offload = OffloadPolicy::kNever;
  expect(OffReason::kOffloadNever, "unset it");
  facts.nodes = 1;
  expect(OffReason::kOneNode, "one node");
  EXPECT_TRUE(is_early());
}

TEST_F(OffloadVerdict, NamesTheFirstCauseWhereNcclHasNoCollNet) {
  facts.has_collnet = false;
  EXPECT_FALSE(is_early());
  expect(OffReason::kNoCollNet, "a node without the plugin");
  facts.has_parent = true;
  facts.parent_comm_id = 0xabc;
  expect(OffReason::kChild, "(commId 0xabc)");
  expect(OffReason::kChild, "config.collnetEnable=1");
  facts.release = 22605;  // has no such member
  EXPECT_THAT(decided().text, Not(HasSubstr("collnetEnable")));
  facts.ranks = 36;
  expect(OffReason::kTooManyGpus, "at most 8 GPUs");
  variables["NCCL_COLLNET_NODE_THRESHOLD"] = "5";
  expect(OffReason::kNodeThreshold, "lower or unset it");
  variables["NCCL_PROTO"] = "LL,LL128";
  expect(OffReason::kAlgorithmExcluded, "add Simple");
  variables["NCCL_COLLNET_ENABLE"] = "0";
  expect(OffReason::kCollNetNotEnabled, "sluice install --nccl-conf");
  variables["NCCL_NET"] = "IB";
  expect(OffReason::kOtherNet, "SLUICE_NET_NAME=IB");
  settings.net_name = "ib";
  expect(OffReason::kCollNetNotEnabled, "NCCL_COLLNET_ENABLE");
  facts.refusal = "reducer 10.0.0.1:7470: connection refused";
  expect(OffReason::kRefused, "10.0.0.1:7470");
  EXPECT_TRUE(is_early());
}

TEST_F(OffloadVerdict, IsOffWhereChainCrashes) {
  capabilities.net = capabilities.collnet = {Device{}, Device{}};
  for (const int release : {22203, 22907, 23004}) {
    facts.release = release;
    expect(OffReason::kChainHeads, "2.30.7");
  }
  for (const int release : {0, 22105, 23007}) {
    facts.release = release;
    expect(OffReason::kNone, "KiB");
  }
  facts.release = 22809;
  facts.has_direct = true;
  expect(OffReason::kNone, "KiB");
  facts.has_direct = false;
  facts.ranks = 4;  // one GPU per node: the same head in both graphs
  expect(OffReason::kNone, "KiB");
}

TEST(AvoidChain, LeavesOnlyDirect) {
  Settings settings;
  settings.reducers.resize(8);
  const CollectiveQuery q{.function = kAllReduce, .bytes = 1 << 30, .nodes = 4, .ranks = 32};
  constexpr int kRows = 6, kColumns = 3;
  const auto table_with = [](float direct) {
    std::vector<float> table(kRows * kColumns, 100.0f);
    table[kCollNetDirect * kColumns + kSimple] = direct;
    table[kCollNetChain * kColumns + kSimple] = 1;
    return table;
  };
  auto table = table_with(50);
  const OffloadRange range = offload_range(q, settings);
  EXPECT_TRUE(adjust_costs(q, settings, range, table.data(), kRows, kColumns, true));
  EXPECT_EQ(table[kCollNetDirect * kColumns + kSimple], 0);
  EXPECT_EQ(table[kCollNetChain * kColumns + kSimple], kForbidden);
  table = table_with(kForbidden);
  EXPECT_FALSE(adjust_costs(q, settings, range, table.data(), kRows, kColumns, true));
  EXPECT_EQ(table[kCollNetChain * kColumns + kSimple], kForbidden);
  EXPECT_EQ(table[kRing * kColumns + kSimple], 100);
}

TEST(NcclRelease, TextsNameBothReleases) {
  EXPECT_THAT(too_old_text(21903, 7), testing::AllOf(HasSubstr("2.19.3"), HasSubstr("2.20")));
  EXPECT_THAT(too_old_text(0, 7), testing::AllOf(HasSubstr("net v7"), HasSubstr("2.20")));
  EXPECT_EQ(too_old_text(0, 8), "");
  EXPECT_EQ(too_old_text(22005, 8), "");
  EXPECT_THAT(too_new_text(24001, 12),
              testing::AllOf(HasSubstr("2.40.1"), HasSubstr("2.32.3"), HasSubstr("v12")));
  EXPECT_EQ(too_new_text(23203, 12), "");
  EXPECT_EQ(too_new_text(0, 12), "");
}

TEST(NcclRelease, IsUnknownWithoutAVersionFunction) {
  EXPECT_EQ(find_release(nullptr), 0);
  EXPECT_EQ(find_release(&drop_line), 0);  // this program has no ncclGetVersion
}

}  // namespace
}  // namespace sluice::nccl::tuner
