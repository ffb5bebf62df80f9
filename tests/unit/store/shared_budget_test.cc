#include "store/server/limits/shared_budget.h"

#include <gtest/gtest.h>

#include "store/server/limits/model_budgets.h"

namespace sluice::store {
namespace {

TEST(SharedBudget, LimitsEachOwnerAndAll) {
  const auto budget = std::make_shared<SharedBudget>("files", "job", BudgetLimits{.all = 10, .each = 6});
  auto first = budget->take("a", 5);
  ASSERT_TRUE(first);
  const auto too_many = budget->take("a", 2);
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, Errc::kTooMany);
  EXPECT_EQ(too_many.error().text,
            R"(job "a" has 5 of the 6 files that a job may have on this reducer, and needs 2 more)");
  EXPECT_EQ(budget->take("b", 6).error().text,
            R"(all jobs have 5 of the 10 files of this reducer, and job "b" needs 6 more)");
  const auto second = budget->take("b", 5);
  ASSERT_TRUE(second);
  EXPECT_EQ(budget->use().used, 10U);
  EXPECT_EQ(budget->use().refused, 2U);
  first->reset();
  EXPECT_TRUE(budget->take("a", 5)) << "they have returned";
  const auto beyond = budget->hold("c", 100);
  EXPECT_EQ(budget->use().used, 105U);
  EXPECT_FALSE(budget->take("a", 1));
}

TEST(SharedBudget, OutlivesItsOwner) {
  auto budget = std::make_shared<SharedBudget>("files", "job", BudgetLimits{.all = 1, .each = 1});
  auto held = budget->take("a", 1);
  budget.reset();
  held->reset();
}

TEST(BudgetOptions, LeaveMostDescriptorsToOthers) {
  const auto many = BudgetOptions::for_descriptors(uint64_t{1} << 20);
  EXPECT_EQ(many.of_jobs.all, 8192U);
  EXPECT_EQ(many.of_jobs.each, 3072U);
  const auto few = BudgetOptions::for_descriptors(4096);
  EXPECT_LE(few.of_jobs.all + few.of_reducers.all, 1024U);
  EXPECT_GT(few.of_reducers.all, 100U);
  EXPECT_LT(few.of_jobs.each, few.of_jobs.all);
  EXPECT_GT(BudgetOptions::for_descriptors(0).of_reducers.all, 0U);
}

}  // namespace
}  // namespace sluice::store
