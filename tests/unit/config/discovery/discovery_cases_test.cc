// Runs the table cases.json: environments and the expected results of discovery.
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

constexpr Nanos kStart = 1000 * kSecond;

// The environment of one case. Its clock advances only in sleep().
class FakeEnvironment {
 public:
  explicit FakeEnvironment(const json& c) : case_(c) {
    env.variable = [this](std::string_view name) -> std::optional<std::string> {
      const auto text = find_text("env", std::string(name));
      return text && !text->empty() ? text : std::nullopt;
    };
    env.read_file = [this](const std::string& path) -> Result<std::optional<std::string>> {
      if (case_.contains("files") && case_["files"].contains(path) && case_["files"][path].is_null())
        return fail(Errc::kSystem, "cannot read " + path);
      return find_text("files", path);
    };
    env.host_name = [this] { return case_.value("host", std::string()); };
    env.addresses = [this] { return case_.value("addresses", std::vector<std::string>()); };
    env.now = [this] { return now; };
    env.sleep = [this](Nanos duration) { now += duration; };
    if (case_.contains("srv"))
      env.resolve_srv = [this](const std::string& name, Nanos deadline) {
        return now < deadline ? next_reply(name) : fail(Errc::kTimeout, "deadline skipped");
      };
  }

  Environment env;
  Nanos now = kStart;

 private:
  // Returns a string as it is, and any other value as JSON text.
  std::optional<std::string> find_text(const char* table, const std::string& key) const {
    if (!case_.contains(table) || !case_[table].contains(key)) return std::nullopt;
    const json& value = case_[table][key];
    return value.is_string() ? value.get<std::string>() : value.dump();
  }
  // Returns the replies of the case in order and then repeats the last one.
  Result<std::vector<SrvRecord>> next_reply(const std::string& name) {
    if (!case_["srv"].contains(name)) return fail(Errc::kUnsupported, "unexpected query: " + name);
    const json& replies = case_["srv"][name];
    const json& reply = replies[std::min(queries_[name]++, replies.size() - 1)];
    if (reply.is_string()) return fail(Errc::kUnsupported, reply.get<std::string>());
    std::vector<SrvRecord> out;
    for (const json& r : reply) out.push_back({.target = r[0], .port = r[1]});
    return out;
  }

  const json& case_;
  std::map<std::string, size_t> queries_;
};

json to_json(const DiscoveryResult& result) {
  json reducers = json::array();
  for (const Endpoint& e : result.reducers) reducers.push_back(config::to_string(e));
  json out = {{"role", to_string(result.role)},
              {"index", nullptr},
              {"reducers", reducers},
              {"workers", result.workers},
              {"source", to_string(result.source)},
              {"job", result.job}};
  if (result.index) out["index"] = *result.index;
  if (!result.file.empty()) out["file"] = result.file;
  if (!result.notes.empty()) out["notes"] = result.notes;
  return out;
}

TEST(DiscoveryCases, MatchTheTable) {
  std::ifstream file(SLUICE_DISCOVERY_CASES);
  ASSERT_TRUE(file.is_open());
  const json cases = json::parse(file);
  ASSERT_GT(cases.size(), 70u);
  for (const json& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    FakeEnvironment fake(c);
    const auto outcome = discover(fake.env);
    EXPECT_EQ(fake.now - kStart, c.value("waited_ms", 0) * kMillisecond);
    if (c.contains("error")) {
      ASSERT_FALSE(outcome.has_value()) << (outcome->result ? to_json(*outcome->result).dump() : "nothing");
      EXPECT_THAT(outcome.error().text, HasSubstr(c["error"].get<std::string>()));
      EXPECT_EQ(outcome.error().text.find('\n'), std::string::npos) << outcome.error().text;
      EXPECT_EQ(outcome.error().code == Errc::kTimeout, c.value("code", "") == "timeout");
      continue;
    }
    ASSERT_TRUE(outcome.has_value()) << outcome.error().text;
    EXPECT_EQ(outcome->result ? to_json(*outcome->result) : json(), c["result"]);
    const json skipped_sources = c.value("skipped", json::object());
    for (const auto& [source, reason] : skipped_sources.items()) {
      const auto skipped = std::ranges::find(
          outcome->skipped, source, [](const Outcome::SkippedSource& p) { return to_string(p.source); });
      ASSERT_NE(skipped, outcome->skipped.end()) << source;
      EXPECT_THAT(skipped->reason, HasSubstr(reason.get<std::string>()));
    }
  }
}

TEST(Discovery, ReportsWhyEarlierSourcesWereSkipped) {
  const json c = {{"env", {{"VC_REDUCER_HOSTS", "a"}}}};
  FakeEnvironment fake(c);
  const auto outcome = discover(fake.env);
  ASSERT_TRUE(outcome && outcome->result);
  EXPECT_EQ(outcome->skipped.size(), std::size(kSources) - 1);
  for (const auto& skipped : outcome->skipped) EXPECT_FALSE(skipped.reason.empty());
}

TEST(Discovery, UsesTheRequestedSource) {
  const json c = {
      {"env", {{"SLUICE_REDUCERS", "a"}, {"SLUICE_SLURM_NODELIST", "b"}, {"SLUICE_DISCOVERY", "static"}}}};
  FakeEnvironment fake(c);
  const auto outcome = discover(fake.env, "slurm");
  ASSERT_TRUE(outcome && outcome->result);
  EXPECT_EQ(outcome->result->source, Source::kSlurm);
  EXPECT_FALSE(discover(fake.env, "unknown").has_value());
}

}  // namespace
}  // namespace sluice::config::discovery
