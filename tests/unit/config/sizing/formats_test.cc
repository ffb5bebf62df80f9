#include "config/sizing/formats/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/sizing/calendar_day.h"
#include "config/sizing/formats/shipped.h"
#include "config/sizing/formats/wrapped_text.h"

namespace sluice::config {
namespace {

using ::testing::HasSubstr;

Plan eight(const std::string& worker, const std::string& reducer) {
  PlanRequest r;
  r.workers = 8;
  r.worker.type = worker;
  r.reducer.type = reducer;
  return *make_plan(r, VmCatalogue::built_in(), *parse_day("2026-11-20"));
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
  EXPECT_EQ(
      plan_as_text(eight("a2-highgpu-8g", "n1-highcpu-16")).find("25 x n1-highcpu-16 cover 8 x 100 Gbps: "),
      0u);
}

TEST(PlanFormats, JsonHoldsWhatIsUnknownAsNull) {
  const auto known = nlohmann::json::parse(plan_as_json(eight("a2-highgpu-8g", "n1-highcpu-16")));
  EXPECT_EQ(known["verdict"], "pays");
  EXPECT_EQ(known["reducers"], 25);
  EXPECT_NEAR(known["cost"]["break_even_share"].get<double>(), 0.1327, 1e-4);
  const auto never = nlohmann::json::parse(plan_as_json(eight("p5.48xlarge", "c8gn.48xlarge")));
  EXPECT_EQ(never["verdict"], "does_not_pay");
  EXPECT_TRUE(never["cost"]["break_even_share"].is_null());
  const auto unknown = nlohmann::json::parse(plan_as_json(eight("n1-highmem-96+8xV100", "n1-highcpu-16")));
  EXPECT_TRUE(unknown["cost"]["workers_usd_per_hour"].is_null());
  EXPECT_EQ(unknown["verdict"], "gain_cost_unknown");
}

TEST(PlanFormats, GcloudIsForThatProviderAlone) {
  EXPECT_THAT(plan_as_gcloud(eight("p5.48xlarge", "c8gn.48xlarge"), "a").error().text, HasSubstr("of aws"));
  const std::string v100 = *plan_as_gcloud(eight("n1-highmem-96+8xV100", "n1-highcpu-16"), "a");
  EXPECT_THAT(v100, HasSubstr("      machineType: n1-highmem-96\n      acceleratorType: NVIDIA_TESLA_V100\n"
                              "      acceleratorCount: 8\n"));
}

TEST(PlanFormats, FiguresGoWhereTheyStoodThoughOthersReadTheSame) {
  const std::vector<Figure> figures = {{"b=2", "b=1"}, {"a=1", "a=b=2"}, {"c", ""}};
  EXPECT_EQ(with_figures("a=1 b=2 c.", figures), "a=b=2 b=1 .");
  EXPECT_EQ(with_figures("a", {}), "a");
  EXPECT_DEATH((void)with_figures("a=1 b=2 c c", figures), "");
  EXPECT_DEATH((void)with_figures("b=2 c", figures), "");
}

TEST(PlanFormats, SwitchesAreThoseOfNcclConf) {
  std::vector<std::string> names;
  for (const Switch& of : nccl_switches()) names.push_back(of.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("NCCL_COLLNET_ENABLE", "NCCL_COLLNET_NODE_THRESHOLD",
                                                     "NCCL_NET_PLUGIN", "NCCL_NET_PLUGIN_REF_COUNT"));
}

TEST(PlanFormats, NamesOfJobsAreLabels) {
  for (const char* name : {"a", "train-7", "a1"}) EXPECT_TRUE(is_job_name(name)) << name;
  for (const char* name :
       {"", "A", "-a", "a-", "7a", "a b", "a\n", "a.b", "a;b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})
    EXPECT_FALSE(is_job_name(name)) << name;
}

}  // namespace
}  // namespace sluice::config
