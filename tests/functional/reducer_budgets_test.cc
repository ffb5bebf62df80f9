// What one job may take of a reducer with a key, so that others still get theirs.
#include <sys/resource.h>

#include "config/secret_file.h"
#include "tests/functional/reducer_fixture.h"
#include "tests/support/temporary_file.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

class ReducerBudgets : public ReducerTest {
 protected:
  ReducerBudgets() {
    options_.key_file = file_.path();
    options_.memory_limit = 16 * kMiB;
    options_.job_share = 50;
  }
  static config::Secret key() {
    config::Secret out{};
    out[0] = 7;
    return out;
  }
  static Shape member(uint8_t session, const std::string& job) {
    const config::Secret of = key();
    return {.session = session_id(session),
            .join_timeout_ms = 20'000,
            .token = wire::job_token(std::as_bytes(std::span(of)), job),
            .job = job};
  }
  // The greedy job joins one session after the other. Returns why it cannot go on.
  std::string join_until_refused(Shape shape) {
    for (int i = 0; i < 100; ++i) {
      shape.session = session_id(next_session_++);
      ScriptedMember next(port(), shape);
      next.join();
      const auto answer = next.control.receive();
      if (!answer) return "closed";
      if (answer->header.type == wire::FrameType::kRefused) {
        wire::Refused refused;
        EXPECT_TRUE(wire::decode_body(std::span<const std::byte>(answer->payload), refused).ok());
        return std::string(to_string(refused.code)) + ": " + refused.text;
      }
      greedy_.push_back(std::move(next));
    }
    return "not refused";
  }
  void expect_served(const std::string& job) {
    Shape shape = member(201, job);
    shape.ranks = 2;
    auto ranks = start_session(port(), shape);
    expect_sums(ranks, 0);
    for (ScriptedMember& rank : ranks) rank.leave();
  }

  const TemporaryFile file_{config::secret_text(key())};
  reducer::ReducerOptions options_ = test_options();
  std::vector<ScriptedMember> greedy_;
  uint8_t next_session_ = 1;
};

TEST_F(ReducerBudgets, AJobLeavesMemoryToOthers) {
  start(options_);
  Shape shape = member(0, "greedy");
  shape.window_bytes = kMiB;
  const std::string why = join_until_refused(shape);
  EXPECT_THAT(
      why,
      AllOf(HasSubstr("memory_limit: job \"greedy\" needs "), HasSubstr(" more bytes of memory, and has "),
            HasSubstr(" of the 8388608 that one job may have: --job-share 50 % of --memory-limit")));
  expect_served("other");
  const nlohmann::json budgets = status()["budgets"];
  EXPECT_EQ(budgets["job_memory_bytes"], 8 * kMiB);
  EXPECT_EQ(budgets["refused"], 1);
  // What is given back may be taken again.
  const size_t had = greedy_.size();
  greedy_.clear();
  ASSERT_TRUE(eventually_empty());
  EXPECT_THAT(join_until_refused(shape), HasSubstr("--memory-limit"));
  EXPECT_EQ(greedy_.size(), had);
}

TEST_F(ReducerBudgets, AJobLeavesConnectionsToOthers) {
  options_.max_connections = 20;
  start(options_);
  EXPECT_THAT(
      join_until_refused(member(0, "greedy")),
      HasSubstr("too_many: job \"greedy\" needs 1 more connections, and has 10 of the 10 that one job may "
                "have: --job-share 50 % of --max-connections"));
  expect_served("other");
  expect_served("another");
}

TEST_F(ReducerBudgets, AJobLeavesDescriptorsToOthers) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{.rlim_cur = 400, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  start(options_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  Shape shape = member(0, "greedy");
  shape.ranks = 64, shape.window_bytes = 4 * kKiB, shape.slot_bytes = 4 * kKiB;
  EXPECT_THAT(join_until_refused(shape),
              HasSubstr("too_many: job \"greedy\" needs 64 more lane connections, and has 192 of "
                        "the 200 that one job may have"));
  expect_served("other");
}

TEST_F(ReducerBudgets, WhereJobsProveNothingOrThereIsOneThereAreNone) {
  options_.job_share = 100;
  start(options_);
  EXPECT_TRUE(status()["budgets"]["job_connections"].is_null());
  options_ = test_options();
  start(options_);
  EXPECT_TRUE(status()["budgets"]["job_memory_bytes"].is_null())
      << "without a key a client may claim any job";
  options_.key_file = file_.path();
  start(options_);
  EXPECT_EQ(status()["budgets"]["job_memory_bytes"], 64 * kMiB / 10 * 9 + 64 * kMiB % 10 * 9 / 10);
  options_.expected_workers = 2;
  start(options_);
  EXPECT_TRUE(status()["budgets"]["job_memory_bytes"].is_null());
}

}  // namespace
}  // namespace sluice::test
