// The table cases.json: surroundings, and what discovery makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "config/discovery/discover.h"

namespace sluice::config::discovery {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr Nanos kBegin = 1000 * kSecond;

// The surroundings of one case, with a clock that only waiting moves.
class Stage {
 public:
  explicit Stage(const json& c) : case_(c) {
    here.variable = [this](std::string_view name) -> std::optional<std::string> {
      const auto text = text_at("env", std::string(name));
      return text && !text->empty() ? text : std::nullopt;
    };
    here.read_file = [this](const std::string& path) -> Result<std::optional<std::string>> {
      if (case_.contains("files") && case_["files"].contains(path) && case_["files"][path].is_null())
        return fail(Errc::kSystem, "can't read " + path);
      return text_at("files", path);
    };
    here.host_name = [this] { return case_.value("host", std::string()); };
    here.now = [this] { return now; };
    here.pause = [this](Nanos time) { now += time; };
    if (case_.contains("srv"))
      here.look_up = [this](const std::string& name, Nanos deadline) {
        return now < deadline ? answer(name) : fail(Errc::kTimeout, "no time");
      };
  }

  Surroundings here;
  Nanos now = kBegin;

 private:
  // Strings as they are; anything else is JSON that the case holds in the open.
  std::optional<std::string> text_at(const char* table, const std::string& key) const {
    if (!case_.contains(table) || !case_[table].contains(key)) return std::nullopt;
    const json& value = case_[table][key];
    return value.is_string() ? value.get<std::string>() : value.dump();
  }
  // One answer of the list after the other, the last one for ever.
  Result<std::vector<SrvRecord>> answer(const std::string& name) {
    if (!case_["srv"].contains(name)) return fail(Errc::kUnsupported, "not expected: " + name);
    const json& list = case_["srv"][name];
    const json& now_said = list[std::min(asked_[name]++, list.size() - 1)];
    if (now_said.is_string()) return fail(Errc::kUnsupported, now_said.get<std::string>());
    std::vector<SrvRecord> out;
    for (const json& r : now_said) out.push_back({.target = r[0], .port = r[1]});
    return out;
  }

  const json& case_;
  std::map<std::string, size_t> asked_;
};

json in_json(const Found& found) {
  json reducers = json::array();
  for (const Endpoint& e : found.reducers) reducers.push_back(config::to_string(e));
  json out = {{"role", to_string(found.role)},
              {"index", nullptr},
              {"reducers", reducers},
              {"workers", found.workers},
              {"source", to_string(found.source)},
              {"job", found.job}};
  if (found.index) out["index"] = *found.index;
  if (!found.file.empty()) out["file"] = found.file;
  if (!found.notes.empty()) out["notes"] = found.notes;
  return out;
}

TEST(DiscoveryCases, ComeOutAsTheTableSays) {
  std::ifstream file(SLUICE_DISCOVERY_CASES);
  ASSERT_TRUE(file.is_open());
  const json cases = json::parse(file);
  ASSERT_GT(cases.size(), 70u);
  for (const json& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    Stage stage(c);
    const auto outcome = discover(stage.here);
    EXPECT_EQ(stage.now - kBegin, c.value("waited_ms", 0) * kMillisecond);
    if (c.contains("error")) {
      ASSERT_FALSE(outcome.has_value()) << (outcome->found ? in_json(*outcome->found).dump() : "nothing");
      EXPECT_THAT(outcome.error().text, HasSubstr(c["error"].get<std::string>()));
      EXPECT_EQ(outcome.error().text.find('\n'), std::string::npos) << outcome.error().text;
      EXPECT_EQ(outcome.error().code == Errc::kTimeout, c.value("code", "") == "timeout");
      continue;
    }
    ASSERT_TRUE(outcome.has_value()) << outcome.error().text;
    EXPECT_EQ(outcome->found ? in_json(*outcome->found) : json(), c["found"]);
    const json told = c.value("passed", json::object());
    for (const auto& [source, why] : told.items()) {
      const auto passed = std::ranges::find(outcome->passed, source,
                                            [](const Outcome::Passed& p) { return to_string(p.source); });
      ASSERT_NE(passed, outcome->passed.end()) << source;
      EXPECT_THAT(passed->why, HasSubstr(why.get<std::string>()));
    }
  }
}

TEST(Discovery, TellsWhyTheSourcesBeforeDidNotWin) {
  const json c = {{"env", {{"SLUICE_SLURM_NODELIST", "a"}}}};
  Stage stage(c);
  const auto outcome = discover(stage.here);
  ASSERT_TRUE(outcome && outcome->found);
  EXPECT_EQ(outcome->passed.size(), std::size(kSources) - 1);
  for (const auto& passed : outcome->passed) EXPECT_FALSE(passed.why.empty());
}

TEST(Discovery, TakesTheSourceThatTheCallerNames) {
  const json c = {
      {"env", {{"SLUICE_REDUCERS", "a"}, {"SLUICE_SLURM_NODELIST", "b"}, {"SLUICE_DISCOVERY", "static"}}}};
  Stage stage(c);
  const auto outcome = discover(stage.here, "slurm");
  ASSERT_TRUE(outcome && outcome->found);
  EXPECT_EQ(outcome->found->source, Source::kSlurm);
  EXPECT_FALSE(discover(stage.here, "nobody").has_value());
}

}  // namespace
}  // namespace sluice::config::discovery
