// More sessions than the control loop visits or frees in one turn.
#include <sys/resource.h>

#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

constexpr size_t kSessions = 300;

class ManySessions : public ReducerTest {
 protected:
  void start_all(const reducer::ReducerOptions& options = test_options()) {
    rlimit files{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
    ASSERT_GE(files.rlim_max, 5 * kSessions);  // two connections of each session, with both ends
    files.rlim_cur = files.rlim_max;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
    start(options);
    for (size_t i = 0; i < kSessions; ++i) {
      ScriptedMember::Shape shape{.window_bytes = 8 * kKiB, .slot_bytes = 4 * kKiB};
      shape.session.bytes[0] = static_cast<uint8_t>(i), shape.session.bytes[1] = static_cast<uint8_t>(i >> 8);
      sessions.push_back(start_session(port(), shape));
    }
  }

  std::vector<std::vector<ScriptedMember>> sessions;
};

TEST_F(ManySessions, AreServedAndEndAtOnce) {
  start_all();
  EXPECT_EQ(status()["sessions"]["open"], kSessions);
  // One pass reaches all of them, and so does the next one.
  for (int beat = 0; beat < 2; ++beat) {
    for (auto& ranks : sessions) static_cast<void>(ranks[0].control.expect<wire::Heartbeat>());
  }
  expect_sums(sessions.front(), 0);
  expect_sums(sessions.back(), 0);
  sessions.clear();
  EXPECT_TRUE(eventually(
      [](const nlohmann::json& j) {
        return j["sessions"]["failed"] == kSessions && j["sessions"]["ending"] == 0 &&
               j["memory"]["reserved_bytes"] == 0;
      },
      30 * kSecond))
      << status()["sessions"];
}

// The clock visits an idle session for its heartbeat, and not at each of its 20 ticks in a second.
TEST_F(ManySessions, CostNothingWhileTheyAreIdle) {
  reducer::ReducerOptions options = test_options();
  options.heartbeat = 2 * kSecond;
  start_all(options);
  const nlohmann::json before = status();
  for (auto& ranks : sessions) static_cast<void>(ranks[0].control.expect<wire::Heartbeat>());
  const nlohmann::json after = status();
  const double beats =
      1 + (after["uptime_seconds"].get<double>() - before["uptime_seconds"].get<double>()) / 2;
  const double ticks =
      after["control"]["session_ticks"].get<double>() - before["control"]["session_ticks"].get<double>();
  EXPECT_GE(ticks, kSessions);
  // Sessions that have just begun are visited at the next tick as well.
  EXPECT_LE(ticks, (beats + 1) * kSessions);
}

}  // namespace
}  // namespace sluice::test
