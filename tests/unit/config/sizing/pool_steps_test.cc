#include "config/sizing/pool_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "config/sizing/calendar_day.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/model.h"

namespace sluice::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

PoolStepInput eight_workers() {
  return {.workers = 8, .full = 8, .chosen = 8, .exposed_share = 0.3, .usd = 2, .workers_usd = 240};
}

TEST(PoolSteps, HoldTheTimeFromNoReducerToAFullPool) {
  const PoolSteps all = pool_steps(eight_workers());
  ASSERT_EQ(all.steps.size(), 9u);
  for (uint64_t k = 0; k <= 8; ++k) {
    const PoolStep& s = all.steps[k];
    const auto reducers = static_cast<double>(k);
    const double share = (8 - reducers) / (64 + 6 * reducers);  // of each worker
    EXPECT_EQ(s.reducers, k);
    EXPECT_NEAR(s.time, 1 + 6 * share, 1e-12);
    EXPECT_NEAR(s.speedup, 1.75 / s.time, 1e-12);
    EXPECT_NEAR(s.co_located_share, 8 * share, 1e-12);
    EXPECT_NEAR(s.pool_alone, k == 0 ? 0 : 8 / reducers, 1e-12);
    EXPECT_DOUBLE_EQ(s.usd_per_hour.value_or(-1), 2 * reducers);
    EXPECT_DOUBLE_EQ(s.extra.value_or(-1), 2 * reducers / 240);
    EXPECT_EQ(s.pays_from.has_value(), k > 0);
  }
}

// Cost of a step with `reducers` relative to one without, for an exposed share f.
double cost_of_step(const PoolStepInput& in, const PoolStep& s, double f) {
  return (1 + *in.usd / *in.workers_usd * static_cast<double>(s.reducers)) * (1 - f + f / s.speedup);
}

TEST(PoolSteps, PayUntilAStepGetsMoreExpensive) {
  for (const double usd : {0.0, 0.5, 3.0, 8.0, 20.0, 500.0}) {
    for (const double f : {0.0, 0.1, 0.3, 0.6, 1.0}) {
      PoolStepInput in = eight_workers();
      in.usd = usd;
      in.exposed_share = f;
      const PoolSteps all = pool_steps(in);
      const auto best = std::ranges::min_element(all.steps, [&](const PoolStep& a, const PoolStep& b) {
        return cost_of_step(in, a, f) < cost_of_step(in, b, f) - 1e-12;
      });
      if (f > 0 || usd > 0) {
        EXPECT_EQ(all.paying, best->reducers) << usd << " USD, " << f;
      }
      for (size_t k = 1; k < all.steps.size(); ++k) {
        if (!all.steps[k].pays_from) continue;
        const double at = *all.steps[k].pays_from;
        EXPECT_NEAR(cost_of_step(in, all.steps[k], at), cost_of_step(in, all.steps[k - 1], at), 1e-9);
      }
    }
  }
}

TEST(PoolSteps, AreUnknownWithoutAPrice) {
  PoolStepInput in = eight_workers();
  in.workers_usd.reset();
  const PoolSteps all = pool_steps(in);
  EXPECT_FALSE(all.paying.has_value());
  EXPECT_FALSE(all.steps.back().pays_from.has_value());
  EXPECT_EQ(all.steps.back().usd_per_hour, 16);
}

TEST(PoolSteps, NeverPayWhereTheTimeDoesNotChange) {
  PoolStepInput in = eight_workers();
  in.workers = 2;
  EXPECT_EQ(pool_steps(in).paying, 0u);
  in = eight_workers();
  in.slowest = 0.5;
  const PoolSteps slow = pool_steps(in);
  EXPECT_EQ(slow.paying, 0u);
  EXPECT_DOUBLE_EQ(slow.steps.front().speedup, 1.75) << "co-located reducers alone reach the slow link";
}

TEST(PoolSteps, AreFewForALargePool) {
  PoolStepInput in = eight_workers();
  in.workers = 65536;
  in.reducer_rate = 1e-3;
  in.full = 65'536'000;
  in.chosen = 1'000'001;
  in.usd = 0.01;
  in.workers_usd = 1e6;
  const PoolSteps all = pool_steps(in);
  EXPECT_LE(all.steps.size(), 36u);
  EXPECT_TRUE(std::ranges::is_sorted(all.steps, std::ranges::greater(), &PoolStep::time));
  EXPECT_EQ(std::ranges::count(all.steps, in.chosen, &PoolStep::reducers), 1);
  EXPECT_EQ(all.steps.front().reducers, 0u);
  EXPECT_EQ(all.steps.back().reducers, in.full);
  EXPECT_EQ(std::ranges::count(all.steps, *all.paying, &PoolStep::reducers), 1);
}

Plan plan_with(const std::function<void(PlanRequest&)>& change) {
  PlanRequest r{.workers = 8, .worker = {.gbps = 100, .usd_per_hour = 30}};
  r.reducer = {.type = "", .gbps = 100, .usd_per_hour = 2};
  change(r);
  return *make_plan(r, VmCatalog::built_in(), *parse_day("2026-11-20"));
}

TEST(PoolSteps, DecideThePlanOfANarrowPool) {
  const Plan half = plan_with([](PlanRequest& r) { r.reducers = 4; });
  EXPECT_NEAR(half.speedup, 1.375, 1e-12);
  EXPECT_EQ(half.verdict, Verdict::kPays);
  EXPECT_THAT(verdict_sentence(half), HasSubstr("the workers sum 36 % of the data"));
  EXPECT_THAT(half.notes, Contains(HasSubstr("CPUs of each worker")));
  EXPECT_THAT(half.warnings, Not(Contains(HasSubstr("too narrow"))));
  EXPECT_THAT(half.warnings, testing::ElementsAre(testing::HasSubstr("coverage 0.50")))
      << "the plugin has co-located reducers too";
  const Plan alone = plan_with([](PlanRequest& r) { r.reducers = 4, r.pool_alone = true; });
  EXPECT_NEAR(alone.speedup, 0.875, 1e-12);
  EXPECT_TRUE(alone.pool_sizes.steps.empty());
  EXPECT_THAT(alone.warnings, Contains(HasSubstr("too narrow")));
  const Plan slow = plan_with([](PlanRequest& r) { r.slow_worker = 0.5; });
  EXPECT_DOUBLE_EQ(slow.times.ring_of_nodes, 2 * plan_with([](PlanRequest&) {}).times.ring_of_nodes);
  EXPECT_THAT(slow.warnings, Contains(HasSubstr("no reducer is needed")));
}

TEST(PoolSteps, AreDrawnTheSameForTheSamePlan) {
  const Plan plan = plan_with([](PlanRequest&) {});
  const std::string svg = plan_as_svg(plan);
  EXPECT_EQ(svg, plan_as_svg(plan));
  EXPECT_EQ(svg.find("<svg "), 0u);
  EXPECT_THAT(svg, HasSubstr("pool alone"));
  EXPECT_THAT(svg, HasSubstr("pays up to"));
  // A point per pool size with co-located reducers: x from the left edge to the right.
  EXPECT_THAT(svg, HasSubstr("<polyline points=\"60.0,"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  const Plan free = plan_with([](PlanRequest& r) { r.reducer.usd_per_hour.reset(); });
  EXPECT_THAT(plan_as_svg(free), Not(HasSubstr("pays up to")));
  EXPECT_THAT(plan_as_text(free), HasSubstr("Set the missing price"));
}

}  // namespace
}  // namespace sluice::config
