// Tenants: memory limits of sessions and tenants, the errors, and the tenants in the status.
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

class ReducerTenantTest : public ReducerTest {
 protected:
  [[nodiscard]] nlohmann::json tenant(const std::string& name) const {
    const nlohmann::json all = status();
    for (const auto& t : all["tenants"]) {
      if (t["tenant"] == name) return t;
    }
    return {};
  }
  // Bytes that a session of two ranks of the default shape reserves.
  uint64_t bytes_of_one() {
    start();
    auto ranks = start_session(port(), {.session = session_id(1), .ranks = 2});
    const uint64_t bytes = status()["memory"]["reserved_bytes"];
    for (auto& r : ranks) r.leave();
    return bytes;
  }
};

TEST_F(ReducerTenantTest, RefusesASessionOverTheSessionLimit) {
  auto options = test_options();
  options.session_memory_limit = bytes_of_one();
  start(options);
  auto running = start_session(port(), {.session = session_id(1), .ranks = 2});
  const auto refused = refusal({.session = session_id(2), .ranks = 3});
  EXPECT_EQ(refused.code, Errc::kMemoryLimit);
  EXPECT_THAT(refused.text,
              AllOf(HasSubstr("needs "),
                    HasSubstr("limit of a session is " + std::to_string(options.session_memory_limit))));
  expect_sums(running, 0);
}

TEST_F(ReducerTenantTest, RefusesATenantOverItsLimitAndServesTheOthers) {
  const uint64_t one = bytes_of_one();
  auto options = test_options();
  options.tenant_memory_limit = 2 * one;
  start(options);
  auto first = start_session(port(), {.session = session_id(1), .ranks = 2, .tenant = "acme"});
  auto second = start_session(port(), {.session = session_id(2), .ranks = 2, .job = "x", .tenant = "acme"});
  const auto refused = refusal({.session = session_id(3), .ranks = 2, .tenant = "acme"});
  EXPECT_EQ(refused.code, Errc::kMemoryLimit);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("needs " + std::to_string(one)), HasSubstr("tenant \"acme\""),
                                  HasSubstr("is " + std::to_string(2 * one) + " bytes, " +
                                            std::to_string(2 * one) + " of them reserved"),
                                  HasSubstr("raise --tenant-memory-limit of the reducer")));
  EXPECT_EQ(refusal({.session = session_id(3), .rank = 1, .ranks = 2, .tenant = "acme"}).text, refused.text)
      << "the same on every rank";
  auto other = start_session(port(), {.session = session_id(4), .ranks = 2, .tenant = "other"});
  for (auto* ranks : {&first, &second, &other}) expect_sums(*ranks, 0);

  EXPECT_EQ(tenant("acme")["sessions"], 2);
  EXPECT_EQ(tenant("acme")["reserved_bytes"], 2 * one);
  EXPECT_EQ(tenant("acme")["refused"], 2);
  EXPECT_EQ(tenant("other")["refused"], 0);
  // The two sessions of "acme" did the same work as the one of "other" each.
  EXPECT_GT(tenant("acme")["served_bytes"], 0);
  EXPECT_EQ(tenant("acme")["served_bytes"], 2 * tenant("other")["served_bytes"].get<uint64_t>());

  // The memory of an ended session is available again.
  for (auto& r : first) r.leave();
  ASSERT_TRUE(eventually([&](const auto&) { return tenant("acme")["reserved_bytes"] == one; }));
  (void)start_session(port(), {.session = session_id(5), .ranks = 2, .tenant = "acme"});
}

TEST_F(ReducerTenantTest, TheJobIsTheDefaultTenant) {
  auto options = test_options();
  options.weights = {{"train", 7}};
  start(options);
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = 2, .job = "train"});
  EXPECT_EQ(tenant("train")["sessions"], 1);
  EXPECT_EQ(tenant("train")["weight"], 7);
  EXPECT_EQ(status()["session_list"][0]["tenant"], "train");
}

TEST_F(ReducerTenantTest, TenantIsJobIgnoresTheClientsTenant) {
  auto options = test_options();
  options.tenant_is_job = true;
  start(options);
  auto ranks =
      start_session(port(), {.session = session_id(1), .ranks = 2, .job = "train", .tenant = "acme"});
  EXPECT_EQ(tenant("train")["sessions"], 1);
  EXPECT_TRUE(tenant("acme").is_null());
}

TEST_F(ReducerTenantTest, ReportsRanksThatDisagreeOnTheTenant) {
  start();
  const Shape agreed{.session = session_id(1), .ranks = 2, .tenant = "acme"};
  ScriptedMember first = join(agreed);
  Shape other = agreed;
  other.rank = 1;
  other.tenant = "else\n\xff";
  const auto refused = refusal(other);
  EXPECT_EQ(refused.code, Errc::kMismatch);
  EXPECT_THAT(refused.text,
              AllOf(HasSubstr("the tenant: rank 1"), HasSubstr("\"else??\""), HasSubstr("\"acme\"")));
}

// Clients choose the names, so a new name with each refusal must not fill memory or the status.
TEST_F(ReducerTenantTest, ForgetsTenantsWithoutSessions) {
  auto options = test_options();
  options.session_memory_limit = 1;
  options.weights = {{"given", 2}};
  start(options);
  for (uint32_t i = 0; i < 600; ++i) {
    const auto refused =
        refusal({.session = session_id(1), .tenant = std::string(120, 'x') + std::to_string(i)});
    ASSERT_EQ(refused.code, Errc::kMemoryLimit);
  }
  EXPECT_LE(status()["tenants"].size(), 16u);
  EXPECT_LT(reducer->status_json().size(), wire::kMaxStatusText);
  EXPECT_EQ(status()["refused"]["memory_limit"], 600);
}

TEST_F(ReducerTenantTest, RefusesWeightsOutOfRange) {
  for (const uint32_t weight : {0U, 101U}) {
    auto options = test_options();
    options.weights = {{"acme", weight}};
    const auto started = reducer::Reducer::start(options);
    ASSERT_FALSE(started);
    EXPECT_THAT(started.error().text, HasSubstr("tenant \"acme\" is " + std::to_string(weight)));
  }
}

}  // namespace
}  // namespace sluice::test
