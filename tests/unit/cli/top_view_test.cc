#include "cli/commands/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns the status of a reducer that moved `gigabytes` and waited `ms` for rank 3 of its only session.
TopSample::Reducer reducer(const char* name, Nanos at, double gigabytes, uint64_t ms,
                           const char* tenant = "acme") {
  const auto bytes = static_cast<uint64_t>(1e9 * gigabytes);
  return {.name = name,
          .at = at,
          .status = {{"reducer_id", 7},
                     {"draining", false},
                     {"lanes", 2},
                     {"lane_busy_seconds", {0.5 * gigabytes, 0.5 * gigabytes}},
                     {"cpu", {{"user_seconds", gigabytes}, {"system_seconds", 0}}},
                     {"memory", {{"limit_bytes", 4u << 20}, {"reserved_bytes", 3u << 19}}},
                     {"data", {{"bytes_in", bytes}, {"bytes_out", bytes}, {"operations", 10 * gigabytes}}},
                     {"closed", {{"bad_magic", 2}, {"closed", 50}}},
                     {"refused", {{"memory_limit", 3}}},
                     {"sessions", {{"open", 1}}},
                     {"session_list",
                      {{{"id", "00ff"},
                        {"tenant", tenant},
                        {"state", "active"},
                        {"ranks", 4},
                        {"joined", 4},
                        {"served_bytes", bytes},
                        {"slow_ranks", nlohmann::json::array({{{"rank", 3}, {"waited_ms", ms}}})}}}}}};
}

TEST(TopView, SumsUpThePool) {
  const TopSample before{{reducer("a:1", 0, 1, 100), reducer("b:1", 0, 1, 100)}};
  const TopSample now{{reducer("a:1", 2 * kSecond, 2, 1100), reducer("b:1", 2 * kSecond, 1.5, 300)}};
  const std::string text = top_text(before, now, 400, 100);
  EXPECT_THAT(
      text, HasSubstr("pool: 2 of 2 reducers, 1 sessions; in 6.00 Gb/s, out 6.00 Gb/s, 7.5 operations/s\n"));
  EXPECT_THAT(text, HasSubstr("memory 3.0 MiB of 8.0 MiB; 0.75 CPUs\n"));
  // Each reducer serves a part of the session; the wait is the longest of all reducers.
  EXPECT_THAT(text, HasSubstr("rank 3 50% (1.1 s)\n"));
  EXPECT_THAT(text, HasSubstr("acme             active        4    2      6.00  -"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "ready        1      0      4.00      4.00   0.0%    25%  0.50    1.5 MiB       2       3\n"));
}

TEST(TopView, NamesTheReducerAndTheRankWhosePathLosesPackets) {
  TopSample before{{reducer("a:1", 0, 1, 0), reducer("b:1", 0, 1, 0)}};
  TopSample now{{reducer("a:1", kSecond, 2, 0), reducer("b:1", kSecond, 2, 0)}};
  const auto set = [](TopSample::Reducer& r, int packets, int lost, int sent, int sent_again) {
    r.status["data"].update({{"packets_in", packets}, {"lost_packets_in", lost}});
    r.status["session_list"][0]["losses"] = {{{"rank", 2}, {"packets", sent}, {"lost_packets", sent_again}}};
  };
  set(before.reducers[1], 5000, 4000, 5000, 4000);
  set(now.reducers[0], 10000, 2, 10000, 2);  // too few to be shown
  set(now.reducers[1], 15000, 4120, 15000, 4120);
  now.reducers[1].status["session_list"][0]["stalls"] = {{{"rank", 1}, {"stalled_ms", 6000}}};
  const std::string text = top_text(before, now, 400, 100);
  EXPECT_THAT(text, HasSubstr("           LOST: 1.2% of packets between rank 2 and b:1\n"));
  EXPECT_THAT(
      text,
      HasSubstr("           STALLED: no byte acknowledged between rank 1 and b:1 for 6.0 s: check the MTU of "
                "the path\n"));
  EXPECT_THAT(text, HasSubstr("  1.2% "));
  EXPECT_THAT(text, HasSubstr("  0.0% "));
}

TEST(TopView, ShowsUnreachableReducers) {
  TopSample::Reducer unreachable{.name = "b:1", .at = 0, .status = nullptr, .error = "refused\x1b[31m"};
  const TopSample now{{reducer("a:1", kSecond, 1, 0), unreachable}};
  const std::string text = top_text({}, now, 400, 100);
  EXPECT_THAT(text, HasSubstr("pool: 1 of 2 reducers"));
  EXPECT_THAT(text, HasSubstr("DOWN      refused?[31m\n"));
  EXPECT_THAT(text, HasSubstr("in 0.00 Gb/s"));  // there is no earlier sample
}

TEST(TopView, AddsUpTheReducersOfAModel) {
  const auto sample = [](Nanos at, uint64_t steps, const char* unavailable) {
    TopSample::Reducer leader = reducer("a:1", at, 1, 0), other = reducer("b:1", at, 1, 0);
    nlohmann::json m = {{"name", "run"},      {"mode", "sync"}, {"version", 7},    {"memory_bytes", 1u << 20},
                        {"step_age_ms", 500}, {"staged", 2},    {"delta_bytes", 0}};
    other.status["models"] = nlohmann::json::array({m});
    m["steps"] = steps;
    m["step_age_ms"] = 400;
    m["pushes"] = {{"contained", 4 * steps}, {"late", steps}};
    m["delta_bytes"] = 1'000'000'000 * steps;
    m["unavailable"] = unavailable;
    leader.status["models"] = nlohmann::json::array({m});
    return TopSample{{leader, other}};
  };
  const std::string text = top_text(sample(0, 1, ""), sample(2 * kSecond, 2, "etcd\n is gone"), 400, 100);
  EXPECT_THAT(text,
              HasSubstr("\nrun                  sync        2         7     0.50     2.50     0.50      4.00"
                        "      0.00      2    2.0 MiB  400 ms\n"));
  EXPECT_THAT(text, HasSubstr("UNAVAILABLE: etcd? is gone\n"));
}

TEST(TopView, ComputesNoRatesAcrossAReducerRestart) {
  const TopSample before{{reducer("a:1", 0, 5, 100)}};
  TopSample now{{reducer("a:1", kSecond, 1, 100)}};
  now.reducers[0].status["reducer_id"] = 8;
  EXPECT_THAT(top_text(before, now, 400, 100), HasSubstr("in 0.00 Gb/s"));
}

TEST(TopView, ShowsTheRanksThatASessionWaitsFor) {
  TopSample now{{reducer("a:1", kSecond, 1, 100)}};
  auto& session = now.reducers[0].status["session_list"][0];
  session["waited_ms"] = 130'000;
  session["missing_ranks"] = 6;
  session["missing"] = {1, 2, 3, 4, 5, 6};
  EXPECT_THAT(top_text({}, now, 400, 100), HasSubstr("2 min for 1 2 3 4 and 2 more"));
  session["state"] = "joining";
  session["joined"] = 1;
  EXPECT_THAT(top_text({}, now, 400, 100), HasSubstr("3 ranks to join"));
}

TEST(TopView, ShowsTheSickestRank) {
  TopSample now{{reducer("a:1", kSecond, 1, 100), reducer("b:1", kSecond, 1, 100)}};
  EXPECT_THAT(top_text({}, now, 400, 100), Not(HasSubstr("SICK")));
  const auto ranks = nlohmann::json::parse(
      R"([{"rank": 1, "findings": {"zeros": 900}}, {"rank": 2, "findings": {"outlier": 3}}, {"rank": 3}, 7])");
  for (auto& r : now.reducers) r.status["session_list"][0]["health"]["ranks"] = ranks;
  EXPECT_THAT(top_text({}, now, 400, 100), HasSubstr("SICK: rank 2: outliers in 6 chunks\n"));
}

TEST(TopView, FitsTheScreenAndPrintsNoControlCharacters) {
  const TopSample now{{reducer("a:1", kSecond, 1, 100, "\x1b]0;owned\x07")}};
  const std::string text = top_text({}, now, 60, 5);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
  EXPECT_THAT(text, HasSubstr("more lines"));
  EXPECT_THAT(top_text({}, now, 400, 100), Not(HasSubstr("\x1b")));
  size_t line = 0;
  for (const char c : text) {
    line = c == '\n' ? 0 : line + 1;
    EXPECT_LE(line, 60u);
  }
}

TEST(TopView, TakesAnythingForAStatus) {
  for (const char* status :
       {"{}", R"({"session_list": 3, "lane_busy_seconds": [null], "closed": [], "draining": 1})",
        R"({"session_list": [7, {"slow_ranks": [{}, 1], "missing": ["x"]}], "data": []})"}) {
    const TopSample then{{{.name = "a:1", .at = kSecond, .status = nlohmann::json::parse(status)}}};
    const TopSample now{{{.name = "a:1", .at = 2 * kSecond, .status = nlohmann::json::parse(status)}}};
    EXPECT_THAT(top_text(then, now, 400, 100), HasSubstr("pool: 1 of 1")) << status;
  }
}

}  // namespace
}  // namespace sluice::cli
