// Reconfiguring a running reducer: what changes for which sessions, and that an invalid option changes
// nothing.
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

class ReducerReconfigureTest : public ReducerTest {
 protected:
  [[nodiscard]] std::map<std::string, uint32_t> weights() const {
    std::map<std::string, uint32_t> out;
    const nlohmann::json all = status();
    for (const auto& t : all["tenants"]) out.emplace(t["tenant"], t["weight"]);
    return out;
  }
};

TEST_F(ReducerReconfigureTest, ChangesTheWeightsOfTenantsWithSessions) {
  auto options = test_options();
  options.weights = {{"acme", 7}, {"gone", 3}};
  start(options);
  auto acme = start_session(port(), {.session = session_id(1), .ranks = 2, .tenant = "acme"});
  auto other = start_session(port(), {.session = session_id(2), .ranks = 2, .tenant = "other"});
  auto changed = options;
  changed.weights = {{"acme", 9}, {"new", 4}};
  changed.default_weight = 2;
  ASSERT_TRUE(reducer->reconfigure(changed));
  EXPECT_EQ(weights(), (std::map<std::string, uint32_t>{{"acme", 9}, {"gone", 2}, {"new", 4}, {"other", 2}}));
  expect_sums(acme, 0);
  expect_sums(other, 0);
}

TEST_F(ReducerReconfigureTest, LimitsApplyToNewSessions) {
  auto options = test_options();
  start(options);
  auto running = start_session(port(), {.session = session_id(1), .ranks = 2});
  const uint64_t bytes = status()["memory"]["reserved_bytes"];
  auto changed = options;
  changed.memory_limit = bytes / 2;
  ASSERT_TRUE(reducer->reconfigure(changed));
  EXPECT_EQ(status()["memory"]["limit_bytes"], bytes / 2);
  const auto refused = refusal({.session = session_id(2)});
  EXPECT_EQ(refused.code, Errc::kMemoryLimit);
  EXPECT_THAT(refused.text, HasSubstr("the memory limit is " + std::to_string(bytes / 2) + " bytes, " +
                                      std::to_string(bytes) + " of them reserved"));
  expect_sums(running, 0);
  changed.memory_limit = 0;
  ASSERT_TRUE(reducer->reconfigure(changed));
  EXPECT_GT(status()["memory"]["limit_bytes"], options.memory_limit) << "half of the machine's memory";
  (void)start_session(port(), {.session = session_id(3), .ranks = 2});
}

TEST_F(ReducerReconfigureTest, AnInvalidOptionChangesNothing) {
  auto options = test_options();
  options.weights = {{"acme", 7}};
  start(options);
  auto changed = options;
  changed.memory_limit = kMiB;
  changed.weights = {{"acme", 101}};
  const auto refused = reducer->reconfigure(changed);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("tenant \"acme\" is 101"));
  EXPECT_EQ(status()["memory"]["limit_bytes"], options.memory_limit);
  EXPECT_EQ(weights(), (std::map<std::string, uint32_t>{{"acme", 7}}));
}

// Lanes update the shares while the control loop changes the weights: for the thread sanitizer.
TEST_F(ReducerReconfigureTest, IsSafeWhileLanesRun) {
  auto options = test_options();
  start(options);
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = 2, .tenant = "acme"});
  auto changed = options;
  for (uint32_t i = 0; i < 200; ++i) {
    changed.weights = {{"acme", 1 + i % 100}};
    ASSERT_TRUE(reducer->reconfigure(changed));
    if (i % 20 == 0) expect_sums(ranks, i / 20);
  }
  EXPECT_EQ(weights().at("acme"), 100u);
}

TEST(CheckOptions, ReturnsTheErrorsOfStart) {
  reducer::ReducerOptions options;
  EXPECT_TRUE(reducer::check_options(options));
  options.listen_host = "";
  EXPECT_THAT(reducer::check_options(options).error().text, HasSubstr("key file"));
  options.key_file = "/no/such.key";
  EXPECT_EQ(reducer::check_options(options).error().code, Errc::kSystem);
  options = {};
  options.peer_timeout = options.heartbeat;
  EXPECT_THAT(reducer::check_options(options).error().text, HasSubstr("peer timeout"));
}

}  // namespace
}  // namespace sluice::test
