#include "cli/commands/pool/pool_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

json session(const std::string& id, uint64_t version = 0, uint64_t joined = 2) {
  return {{"id", id},         {"state", "active"},         {"ranks", 2},
          {"joined", joined}, {"roster_version", version}, {"absent_ranks", 0}};
}

json list(const std::vector<json>& sessions) {
  return sessions;
}

PoolSample::Reducer reducer(const std::string& name, const json& sessions, size_t open) {
  return {
      .name = name,
      .status = {
          {"draining", false}, {"version", "1"}, {"sessions", {{"open", open}}}, {"session_list", sessions}}};
}

PoolCheck check(const json& a, const json& b) {
  return check_pool({.reducers = {reducer("a", a, a.size()), reducer("b", b, b.size())}});
}

TEST(PoolCheck, IsReadyWithoutSessionsAndWithTheSameOnes) {
  EXPECT_THAT(check(json::array(), json::array()).problems, IsEmpty());
  EXPECT_THAT(check(list({session("1"), session("2")}), list({session("1"), session("2")})).problems,
              IsEmpty());
  EXPECT_THAT(
      check(list({session("1"), session("2")}), list({session("1"), session("2")})).reducers,
      ElementsAre("reducer a: ready, 2 sessions, version 1", "reducer b: ready, 2 sessions, version 1"));
}

TEST(PoolCheck, NamesWhatIsMissing) {
  EXPECT_THAT(check(list({session("1")}), json::array()).problems,
              ElementsAre("session 1 is not on reducer b"));
  EXPECT_THAT(check(list({session("1")}), list({session("1", 0, 1)})).problems,
              ElementsAre("session 1 lacks ranks on reducer b"));
  EXPECT_THAT(check(list({session("1", 3)}), list({session("1", 2)})).problems,
              ElementsAre("session 1 is changing its view"));
  json joining = session("1");
  joining["state"] = "joining";
  EXPECT_THAT(check(list({joining}), list({session("1")})).problems,
              ElementsAre("session 1 lacks ranks on reducer a"));
}

TEST(PoolCheck, LeavesOutSessionsWithoutFaultTolerance) {
  json plain = session("1");
  plain.erase("roster_version");
  EXPECT_THAT(check(list({plain}), json::array()).problems, IsEmpty());
}

TEST(PoolCheck, NamesReducersThatDoNotAcceptSessions) {
  PoolSample sample{.reducers = {reducer("a", json::array(), 0), reducer("b", json::array(), 0)}};
  sample.reducers[0].status["draining"] = true;
  sample.reducers[1] = {.name = "b", .error = "reducer b: connection refused"};
  EXPECT_THAT(check_pool(sample).problems,
              ElementsAre("reducer a: draining, 0 sessions, version 1", "reducer b: connection refused"));
}

TEST(PoolCheck, MissesNoSessionOnADrainingReducer) {
  const json sessions = list({session("1")});
  PoolSample sample{.reducers = {reducer("a", sessions, 1), reducer("b", sessions, 1)}};
  sample.reducers[0].status["draining"] = true;
  EXPECT_THAT(check_pool(sample).problems, ElementsAre("reducer a: draining, 1 sessions, version 1"));
}

// A status lists the first sessions by id. Whether later ones are there is unknown.
TEST(PoolCheck, JudgesOnlyWhatALongListShows) {
  const PoolSample sample{
      .reducers = {reducer("a", list({session("1"), session("3")}), 5),
                   reducer("b", list({session("1"), session("2"), session("3"), session("4")}), 4)}};
  const PoolCheck result = check_pool(sample);
  EXPECT_THAT(result.problems, ElementsAre("session 2 is not on reducer a"));
  EXPECT_THAT(result.notes, ElementsAre("reducer a lists only 2 of 5 sessions; the others are not checked"));
}

}  // namespace
}  // namespace sluice::cli
