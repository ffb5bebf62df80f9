#include "config/sizing/formats/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/sizing/calendar_day.h"
#include "config/sizing/formats/templates.h"

namespace sluice::config {
namespace {

using ::testing::HasSubstr;

Plan plan_for_eight(const std::string& worker, const std::string& reducer) {
  const PlanRequest request{.workers = 8, .worker = {.type = worker}, .reducer = {.type = reducer}};
  return *make_plan(request, VmCatalog::built_in(), *parse_day("2026-11-20"));
}

TEST(PlanFormats, WrapAtTheWidth) {
  std::string out;
  append_wrapped(out, std::string(60, 'a') + " " + std::string(50, 'b') + " c", "* ", "  ");
  EXPECT_EQ(out, "* " + std::string(60, 'a') + "\n  " + std::string(50, 'b') + " c\n");
  out.clear();
  append_wrapped(out, std::string(150, 'a'), "# ", "# ");
  EXPECT_EQ(out, "# " + std::string(150, 'a') + "\n");
  out.clear();
  append_wrapped(out, "", "# ", "# ");
  EXPECT_EQ(out, "# \n");
}

TEST(PlanFormats, TextBeginsWithTheVerdict) {
  EXPECT_EQ(plan_as_text(plan_for_eight("a2-highgpu-8g", "n1-highcpu-16"))
                .find("25 x n1-highcpu-16 cover 8 x 100 Gbps: "),
            0u);
}

TEST(PlanFormats, JsonContainsNullForUnknownValues) {
  const auto known = nlohmann::json::parse(plan_as_json(plan_for_eight("a2-highgpu-8g", "n1-highcpu-16")));
  EXPECT_EQ(known["verdict"], "pays");
  EXPECT_EQ(known["reducers"], 25);
  EXPECT_NEAR(known["cost"]["break_even_share"].get<double>(), 0.1327, 1e-4);
  const auto never = nlohmann::json::parse(plan_as_json(plan_for_eight("p5.48xlarge", "c8gn.48xlarge")));
  EXPECT_EQ(never["verdict"], "does_not_pay");
  EXPECT_TRUE(never["cost"]["break_even_share"].is_null());
  const auto unknown =
      nlohmann::json::parse(plan_as_json(plan_for_eight("n1-highmem-96+8xV100", "n1-highcpu-16")));
  EXPECT_TRUE(unknown["cost"]["workers_usd_per_hour"].is_null());
  EXPECT_EQ(unknown["verdict"], "gain_cost_unknown");
}

TEST(PlanFormats, GcloudRejectsOtherProviders) {
  EXPECT_THAT(plan_as_gcloud(plan_for_eight("p5.48xlarge", "c8gn.48xlarge"), "a").error().text,
              HasSubstr("of aws"));
  const std::string v100 = *plan_as_gcloud(plan_for_eight("n1-highmem-96+8xV100", "n1-highcpu-16"), "a");
  EXPECT_THAT(v100, HasSubstr("      machineType: n1-highmem-96\n      acceleratorType: NVIDIA_TESLA_V100\n"
                              "      acceleratorCount: 8\n"));
}

TEST(PlanFormats, ReplacementsAreNotReplacedAgain) {
  const std::vector<Substitution> substitutions = {{"b=2", "b=1"}, {"a=1", "a=b=2"}, {"c", ""}};
  EXPECT_EQ(fill_template("a=1 b=2 c.", substitutions), "a=b=2 b=1 .");
  EXPECT_EQ(fill_template("a", {}), "a");
  EXPECT_DEATH((void)fill_template("a=1 b=2 c c", substitutions), "");
  EXPECT_DEATH((void)fill_template("b=2 c", substitutions), "");
}

TEST(PlanFormats, NcclVariablesComeFromNcclConf) {
  std::vector<std::string> names;
  for (const EnvVariable& variable : nccl_variables()) names.push_back(variable.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("NCCL_COLLNET_ENABLE", "NCCL_COLLNET_NODE_THRESHOLD",
                                                     "NCCL_NET_PLUGIN", "NCCL_NET_PLUGIN_REF_COUNT"));
}

TEST(PlanFormats, JobNamesAreDnsLabels) {
  for (const char* name : {"a", "train-7", "a1"}) EXPECT_TRUE(is_job_name(name)) << name;
  for (const char* name :
       {"", "A", "-a", "a-", "7a", "a b", "a\n", "a.b", "a;b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})
    EXPECT_FALSE(is_job_name(name)) << name;
}

}  // namespace
}  // namespace sluice::config
