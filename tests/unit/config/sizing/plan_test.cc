#include "config/sizing/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config/sizing/calendar_day.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/session_memory.h"
#include "core/instrumented.h"

namespace sluice::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// The table dates from 2026, so the tests plan in that year.
const int64_t kToday = parse_day("2026-11-20").value_or(0);

Plan plan_of(const PlanRequest& request) {
  auto plan = make_plan(request, VmCatalog::built_in(), kToday);
  EXPECT_TRUE(plan.has_value()) << plan.error().text;
  return plan ? std::move(*plan) : Plan{};
}

PlanRequest request_by_types(uint64_t workers, const std::string& worker, const std::string& reducer) {
  return {.workers = workers, .worker = {.type = worker}, .reducer = {.type = reducer}};
}

PlanRequest request_by_gbps(uint64_t workers, double gbps, const std::string& reducer) {
  return {.workers = workers, .worker = {.gbps = gbps}, .reducer = {.type = reducer}};
}

std::string error_of(const PlanRequest& request) {
  const auto plan = make_plan(request, VmCatalog::built_in(), kToday);
  return plan ? "" : plan.error().text;
}

// The examples of Vertex AI's documentation and one of its samples.
TEST(SizingPlan, MatchesTheExamplesOfVertexAi) {
  const Plan five = plan_of(request_by_gbps(5, 100, "n1-highcpu-16"));
  EXPECT_EQ(five.chosen.count, 16u);
  EXPECT_DOUBLE_EQ(five.chosen.coverage, 512.0 / 500);
  EXPECT_DOUBLE_EQ(five.speedup, 1.6);
  EXPECT_EQ(plan_of(request_by_types(5, "n1-highmem-96+8xV100", "n1-highcpu-16")).chosen.count, 16u);
  const Plan eight = plan_of(request_by_gbps(8, 100, "n1-highcpu-16"));
  EXPECT_EQ(eight.chosen.count, 25u);
  EXPECT_DOUBLE_EQ(eight.chosen.coverage, 1);
  EXPECT_THAT(eight.warnings, Not(Contains(HasSubstr("coverage"))));
  PlanRequest narrow = request_by_gbps(8, 100, "n1-highcpu-16");
  narrow.reducers = 24;
  narrow.pool_alone = true;
  const Plan forced = plan_of(narrow);
  EXPECT_DOUBLE_EQ(forced.chosen.coverage, 0.96);
  EXPECT_DOUBLE_EQ(forced.speedup, 1.75 * 0.96);
  EXPECT_THAT(forced.warnings, Contains(HasSubstr("coverage 0.96")));
  EXPECT_THAT(forced.warnings, Contains(HasSubstr("25 reducers would cover all")));
}

struct WorkedExample {
  const char* worker;
  const char* reducer;
  uint64_t count;
  double extra_percent;
  double break_even_percent;  // 0: never
};

// Eight nodes each; docs/guides/size.md has the same table.
TEST(SizingPlan, MatchesTheWorkedExamples) {
  for (const WorkedExample& w :
       {WorkedExample{"a2-megagpu-16g", "n1-highcpu-16", 25, 3.2, 7.2},
        WorkedExample{"a2-highgpu-8g", "n1-highcpu-16", 25, 6.0, 13.3},
        WorkedExample{"p3dn.24xlarge", "c7gn.8xlarge", 8, 6.4, 14.0},
        WorkedExample{"g5.48xlarge", "c7gn.16xlarge", 4, 12.3, 25.5},
        WorkedExample{"g6e.48xlarge", "c8gn.16xlarge", 16, 25.2, 46.9},
        WorkedExample{"a3-highgpu-8g", "h3-standard-88", 40, 27.8, 50.8},
        WorkedExample{"p4d.24xlarge", "c8gn.16xlarge", 16, 34.5, 59.9},
        WorkedExample{"Standard_ND96isr_H100_v5", "Standard_HB176rs_v4", 64, 58.6, 86.2},
        WorkedExample{"p5.48xlarge", "c8gn.48xlarge", 43, 111.1, 0}}) {
    const Plan plan = plan_of(request_by_types(8, w.worker, w.reducer));
    EXPECT_EQ(plan.chosen.count, w.count) << w.worker;
    EXPECT_NEAR(100 * plan.chosen.extra.value_or(-1), w.extra_percent, 0.05) << w.worker;
    EXPECT_NEAR(100 * plan.chosen.break_even.value_or(0), w.break_even_percent, 0.05) << w.worker;
    const bool pays = w.break_even_percent > 0 && w.break_even_percent < 30;  // the default of --exposed
    EXPECT_EQ(plan.verdict, pays ? Verdict::kPays : Verdict::kDoesNotPay) << w.worker;
  }
  EXPECT_THAT(verdict_sentence(plan_of(request_by_types(8, "p5.48xlarge", "c8gn.48xlarge"))),
              HasSubstr("does not pay"));
}

TEST(SizingPlan, JudgesAtTheExposedShare) {
  PlanRequest request = request_by_types(8, "p4d.24xlarge", "c8gn.16xlarge");  // pays from 59.9 %
  EXPECT_THAT(verdict_sentence(plan_of(request)),
              HasSubstr("does not pay at 30 % (--exposed), only when exposed communication exceeds 60 %"));
  request.exposed = 0.7;
  EXPECT_EQ(plan_of(request).verdict, Verdict::kPays);
  EXPECT_THAT(verdict_sentence(plan_of(request)),
              HasSubstr(", pays when exposed communication exceeds 60 %"));
}

TEST(SizingPlan, TakesTheNetworkThatNcclWouldUse) {
  PlanRequest request{.workers = 8, .worker = {.type = "Standard_ND96asr_v4"}};
  const Plan infiniband = plan_of(request);
  EXPECT_EQ(infiniband.worker.network(), VmNetwork::kInfiniBand);
  EXPECT_DOUBLE_EQ(infiniband.worker.gbps, 1600);
  EXPECT_EQ(infiniband.reducer.network(), VmNetwork::kInfiniBand);
  EXPECT_EQ(infiniband.verdict, Verdict::kDoesNotPay);
  request.ethernet = true;
  const Plan ethernet = plan_of(request);
  EXPECT_DOUBLE_EQ(ethernet.worker.gbps, 24);
  EXPECT_EQ(ethernet.reducer.network(), VmNetwork::kEthernet);
  EXPECT_THAT(ethernet.warnings, Contains(HasSubstr("NCCL must use Ethernet too")));
  request.worker.type = "Standard_ND96isr_H100_v5";
  EXPECT_THAT(error_of(request), HasSubstr("no Ethernet bandwidth of Standard_ND96isr_H100_v5"));
  EXPECT_THAT(plan_of(request_by_types(8, "p4d.24xlarge", "c8gn.16xlarge")).warnings,
              Contains(HasSubstr("EFA (aws-ofi-nccl)")));
}

TEST(SizingPlan, NamesTheLimitsOfASession) {
  PlanRequest request = request_by_gbps(80, 1000, "n1-highcpu-16");
  request.worker.usd_per_hour = 30;
  const Plan plan = plan_of(request);
  EXPECT_EQ(plan.chosen.count, 2500u);
  EXPECT_EQ(plan.verdict, Verdict::kOverLimit);
  EXPECT_THAT(verdict_sentence(plan),
              HasSubstr("over the limits of a session, 1024 reducers and 2048 nodes"));
  // A wider type that fits is chosen before a cheaper one that does not.
  PlanRequest any{.workers = 80, .worker = {.gbps = 1000, .usd_per_hour = 30}, .provider = "gcp"};
  const Plan chosen = plan_of(any);
  EXPECT_LE(chosen.chosen.count, kMaxReducers) << chosen.reducer.type;
  EXPECT_GT(chosen.candidates.front().count, kMaxReducers);
}

TEST(SizingPlan, CountsTheProcessorsOfTlsAndHealth) {
  PlanRequest request = request_by_gbps(8, 100, "c6in.16xlarge");
  EXPECT_NEAR(plan_of(request).busy_processors, 12.5 * 0.68, 1e-9);
  request.tls = true;
  EXPECT_NEAR(plan_of(request).busy_processors, 12.5 * 1.58, 1e-9);
  request.health = true;
  EXPECT_NEAR(plan_of(request).busy_processors, 12.5 * 1.61, 1e-9);
}

TEST(SizingPlan, ReportsWhenThereIsNoGain) {
  for (const uint64_t gpus : {uint64_t{1}, uint64_t{8}}) {
    PlanRequest two = request_by_gbps(2, 100, "n1-highcpu-16");
    two.gpus_per_node = gpus;
    const Plan plan = plan_of(two);
    EXPECT_EQ(plan.verdict, Verdict::kNoGain);
    EXPECT_DOUBLE_EQ(plan.speedup, 1);
    EXPECT_DOUBLE_EQ(plan.speedup_tree, 1);
    EXPECT_THAT(verdict_sentence(plan), HasSubstr("no gain"));
    EXPECT_THAT(plan.warnings, Contains(HasSubstr("two nodes gain nothing")));
  }
  EXPECT_THAT(verdict_sentence(plan_of(request_by_gbps(1, 100, "n1-highcpu-16"))),
              HasSubstr("within one node"));
  PlanRequest half = request_by_gbps(8, 100, "n1-highcpu-16");
  half.reducers = 12;
  half.pool_alone = true;
  EXPECT_EQ(plan_of(half).verdict, Verdict::kNoGain);
  EXPECT_THAT(verdict_sentence(plan_of(half)), HasSubstr("1.19 x the time of a ring"));
}

TEST(SizingPlan, CountsGpusOnlyInTheFlatRing) {
  PlanRequest one = request_by_gbps(5, 100, "n1-highcpu-16");
  one.gpus_per_node = 1;
  PlanRequest eight = one;
  eight.gpus_per_node = 8;
  const Plan a = plan_of(one);
  const Plan b = plan_of(eight);
  EXPECT_DOUBLE_EQ(a.speedup_flat_ring, 1.6);
  EXPECT_DOUBLE_EQ(b.speedup_flat_ring, 1.95);
  EXPECT_DOUBLE_EQ(a.speedup, b.speedup);
  EXPECT_EQ(a.chosen.count, b.chosen.count);
  EXPECT_EQ(a.max_heads, 1u);
  EXPECT_EQ(b.max_heads, 8u);
  EXPECT_EQ(a.session_bytes, b.session_bytes);
  EXPECT_THAT(b.warnings, Not(Contains(HasSubstr("2.28.3"))));
  PlanRequest many = one;
  many.gpus_per_node = 9;
  EXPECT_THAT(plan_of(many).warnings, Contains(HasSubstr("NCCL 2.28.3 and newer never offload")));
  EXPECT_THAT(plan_of(request_by_types(8, "a2-megagpu-16g", "n1-highcpu-16")).warnings,
              Contains(HasSubstr("16 GPUs")));
}

// Reducers are counted for hosts: their number, the speedup and the coverage do not depend on the ranks.
TEST(SizingPlan, RanksOfAHostSendOnceAndNeedASessionEach) {
  PlanRequest request = request_by_types(8, "p3dn.24xlarge", "c7gn.8xlarge");
  request.gpus_per_node = 1;
  request.flow_gbps = 1;
  const Plan one = plan_of(request);
  request.ranks_per_host = 4;
  const Plan four = plan_of(request);
  EXPECT_EQ(four.chosen.count, one.chosen.count);
  EXPECT_DOUBLE_EQ(four.speedup, one.speedup);
  EXPECT_EQ(one.max_heads, 1u);
  EXPECT_EQ(four.max_heads, 4u);
  ASSERT_GT(one.lanes_per_session, 8u);
  EXPECT_EQ(four.lanes_per_session, (one.lanes_per_session + 3) / 4);
  EXPECT_THAT(four.notes, Contains(HasSubstr("an allreduce would take 4 x as long")));
  EXPECT_THAT(plan_as_text(four), HasSubstr("8 hosts x 4, each host sends its sum once"));
  EXPECT_THAT(plan_as_text(four), HasSubstr("for each of up to 4 rails"));
  EXPECT_THAT(plan_as_text(one), Not(HasSubstr("rails")));
  request.workers = 600;
  EXPECT_EQ(plan_of(request).verdict, Verdict::kOverLimit);
  EXPECT_THAT(plan_of(request).warnings,
              Contains(HasSubstr("600 hosts x 4 ranks: a session supports at most")));
}

TEST(SizingPlan, ChoosesFromTheProvidersTypes) {
  PlanRequest request = request_by_types(8, "p3dn.24xlarge", "");
  const Plan plan = plan_of(request);
  ASSERT_GT(plan.candidates.size(), 5u);
  EXPECT_TRUE(
      std::is_sorted(plan.candidates.begin(), plan.candidates.end(), [](const auto& a, const auto& b) {
        return a.usd_per_hour.value_or(1e9) < b.usd_per_hour.value_or(1e9);
      }));
  for (const Candidate& c : plan.candidates) {
    EXPECT_EQ(c.vm.provider, "aws");
    EXPECT_NE(c.vm.network(), VmNetwork::kEfa) << c.vm.type;
    if (c.vm.arch != "x86_64" || !c.usd_per_hour) continue;
    EXPECT_GE(*c.usd_per_hour, plan.chosen.usd_per_hour.value_or(0)) << c.vm.type;
  }
  EXPECT_EQ(plan.reducer.arch, "x86_64");
  EXPECT_THAT(plan_of(request_by_types(8, "p3dn.24xlarge", "c7gn.8xlarge")).warnings,
              Contains(HasSubstr("arm64")));
  EXPECT_THAT(error_of(request_by_gbps(8, 100, "")), HasSubstr("--reducer-type"));
  // Workers on InfiniBand need reducer types on InfiniBand, and workers on Ethernet types on Ethernet.
  EXPECT_EQ(plan_of(request_by_types(8, "Standard_ND96isr_H100_v5", "")).reducer.network(),
            VmNetwork::kInfiniBand);
  PlanRequest ethernet = request_by_types(8, "Standard_ND96asr_v4", "");
  ethernet.ethernet = true;
  EXPECT_EQ(plan_of(ethernet).reducer.type, "Standard_F72s_v2");
}

TEST(SizingPlan, UsesTheUsersValues) {
  PlanRequest request = request_by_gbps(8, 100, "our-rack");
  EXPECT_THAT(error_of(request), HasSubstr("--reducer-gbps"));
  request.reducer.gbps = 100;
  request.reducer.usd_per_hour = 1.99;
  EXPECT_EQ(plan_of(request).verdict, Verdict::kGainCostUnknown);
  request.worker.usd_per_hour = 30;
  const Plan plan = plan_of(request);
  EXPECT_EQ(plan.chosen.count, 8u);
  EXPECT_DOUBLE_EQ(plan.chosen.extra.value_or(0), 1.99 / 30);
  request.reducer_cpu_gbps = 50;
  EXPECT_EQ(plan_of(request).chosen.count, 16u);
}

TEST(SizingPlan, PlansConnections) {
  Plan plan = plan_of(request_by_types(8, "p3dn.24xlarge", "c5n.18xlarge"));
  EXPECT_DOUBLE_EQ(plan.pair_gbps, 12.5);
  EXPECT_EQ(plan.flows_per_pair, 3u);
  EXPECT_EQ(plan.lanes_per_session, 3u);
  PlanRequest together = request_by_types(8, "p3dn.24xlarge", "c5n.18xlarge");
  together.flow_gbps = 25;
  plan = plan_of(together);
  EXPECT_EQ(plan.flows_per_pair, 1u);
  EXPECT_EQ(plan.lanes_per_session, 2u);
  together.flow_gbps = 0.1;
  EXPECT_EQ(plan_of(together).lanes_per_session, 64u);
  EXPECT_THAT(plan_of(together).warnings, Contains(HasSubstr("flows")));
}

TEST(SizingPlan, WarnsAboutOldAndUncertainValues) {
  const auto prices = VmCatalog::parse(
      "provider,type,role,gbps,usd_per_hour,price_date,bandwidth_date\n"
      "here,fresh,reducer,100,1,2025-11-20,2026-01-01\nhere,old,reducer,100,1,2025-11-19,undated\n",
      "own.csv");
  ASSERT_TRUE(prices.has_value());
  const auto warnings = [&](const std::string& type) {
    return make_plan(request_by_gbps(8, 100, type), *prices, kToday)->warnings;
  };
  EXPECT_THAT(warnings("fresh"), Not(Contains(HasSubstr("year ago"))));
  EXPECT_THAT(warnings("old"),
              Contains(HasSubstr("price of old dates from 2025-11-19, more than a year ago")));
  EXPECT_THAT(warnings("old"), Contains(HasSubstr("undated")));
  PlanRequest tier = request_by_types(8, "a2-highgpu-8g", "n2-highcpu-80");
  EXPECT_THAT(error_of(tier), HasSubstr("--tier1"));
  tier.tier1 = true;
  EXPECT_THAT(plan_of(tier).warnings, Contains(HasSubstr("Tier_1 networking")));
  PlanRequest mixed = request_by_types(8, "Standard_ND96asr_v4", "Standard_HB176rs_v4");
  mixed.ethernet = true;
  EXPECT_THAT(plan_of(mixed).warnings, Contains(HasSubstr("over InfiniBand")));
  EXPECT_THAT(plan_of(request_by_types(8, "p4d.24xlarge", "hpc7g.16xlarge")).warnings,
              Contains(HasSubstr("EFA")));
  EXPECT_THAT(plan_of(request_by_types(8, "p5.48xlarge", "c5n.18xlarge")).warnings,
              Contains(HasSubstr("RDMA network")));
}

TEST(SizingPlan, RejectsValuesOutOfRange) {
  const auto changed = [](auto change) {
    PlanRequest r = request_by_gbps(8, 100, "n1-highcpu-16");
    change(r);
    return error_of(r);
  };
  EXPECT_THAT(changed([](PlanRequest& r) { r.workers = 0; }), HasSubstr("--workers"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.worker.gbps = std::nan(""); }), HasSubstr("--worker-gbps"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.worker.gbps = -1; }), HasSubstr("--worker-gbps"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.slow_worker = 0; }), HasSubstr("--slow-worker"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.slow_worker = 1.5; }), HasSubstr("--slow-worker"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.exposed = -0.1; }), HasSubstr("--exposed"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.exposed = std::nan(""); }), HasSubstr("--exposed"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.headroom = 1.1; }), HasSubstr("--headroom"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.headroom = 0; }), HasSubstr("--headroom"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.flow_gbps = 1e-9; }), HasSubstr("--flow-gbps"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.reducer.usd_per_hour = -3; }), HasSubstr("--reducer-price"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.message_bytes = 0; }), HasSubstr("--size"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.reducer.type = "a b"; }), HasSubstr("--reducer-type"));
  EXPECT_THAT(changed([](PlanRequest& r) { r.worker.gbps.reset(); }), HasSubstr("--worker-type"));
}

bool all_finite(const Plan& p) {
  for (const double figure :
       {p.chosen.coverage, p.speedup, p.speedup_flat_ring, p.speedup_tree, p.times.reducers,
        p.times.flat_ring, p.times.tree, p.times.ring_of_nodes, p.pair_gbps, p.busy_processors,
        p.chosen.extra.value_or(0), p.chosen.break_even.value_or(0)}) {
    if (!std::isfinite(figure) || figure < 0) return false;
  }
  return true;
}

// Instrumented builds test fewer sizes.
uint64_t next_size(uint64_t n) {
  if (SLUICE_INSTRUMENTED != 0) return n + (n < 20 ? 1 : n / 5);
  return n + (n < 70 ? 1 : 61);
}

// From 1 to 4096 nodes, for any ratio of the two bandwidths.
TEST(SizingPlan, InvariantsHoldAtEverySize) {
  for (const double worker : {0.001, 1.0, 33.3, 100.0, 6400.0, 1e6}) {
    for (const double reducer : {0.001, 10.0, 32.0, 600.0, 1e6}) {
      if (worker / reducer > 1e5) continue;  // would need more reducers than the limit
      uint64_t least = 0;
      double speedup = 0;
      for (uint64_t n = 1; n <= 4096; n = next_size(n)) {
        PlanRequest r = request_by_gbps(n, worker, "");
        r.reducer = {.type = "", .gbps = reducer, .usd_per_hour = 1};
        r.worker.usd_per_hour = 10;
        r.gpus_per_node = n % 9;
        r.pool_alone = n % 2 == 0;
        const Plan p = plan_of(r);
        ASSERT_TRUE(all_finite(p)) << n << ' ' << worker << ' ' << reducer;
        ASSERT_GE(p.chosen.coverage, 1 - 1e-9) << n;
        ASSERT_LT((static_cast<double>(p.chosen.count) - 1) * reducer, static_cast<double>(n) * worker) << n;
        ASSERT_GE(p.chosen.count, least) << n;
        ASSERT_GE(p.speedup, speedup) << n;
        ASSERT_LT(p.speedup, 2) << n;
        ASSERT_LE(p.speedup_flat_ring, 2) << n;
        ASSERT_GE(static_cast<double>(p.flows_per_pair), 1) << n;
        ASSERT_FALSE(plan_as_text(p).empty());
        least = p.chosen.count;
        speedup = p.speedup;
      }
    }
  }
}

TEST(SizingPlan, MoreReducersAreNeverSlower) {
  double last = 0;
  for (uint64_t count = 1; count <= 40; ++count) {
    PlanRequest r = request_by_gbps(8, 100, "n1-highcpu-16");
    r.reducers = count;
    const Plan p = plan_of(r);
    EXPECT_GE(p.speedup, last) << count;
    EXPECT_LE(p.speedup, 1.75 + 1e-12);
    EXPECT_EQ(p.chosen.count, count);
    last = p.speedup;
  }
  EXPECT_DOUBLE_EQ(last, 1.75);
}

}  // namespace
}  // namespace sluice::config
