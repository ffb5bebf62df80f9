// A reducer in the test's process, and scripted ranks of fault-tolerant sessions.
#pragma once

#include "tests/functional/reducer_fixture.h"

namespace sluice::test {

inline constexpr uint64_t kOtherReducer = 7;  // a reducer that does not exist

class ReducerRecoveryTest : public ReducerTest {
 protected:
  using Shape = ScriptedMember::Shape;

  // Long timeouts, since the ranks send no heartbeats unless a test says so.
  static reducer::ReducerOptions long_timeouts() {
    auto o = test_options();
    o.absence_timeout = 60 * kSecond;
    return o;
  }
  static Shape fault_tolerant(uint32_t ranks) {
    return {.session = session_id(1), .ranks = ranks, .features = wire::kFaultToleranceFeatures};
  }
  // The reducer is the second one of the list.
  static Shape not_arbiter(uint32_t ranks) {
    Shape shape = fault_tolerant(ranks);
    shape.reducers_before = {kOtherReducer};
    return shape;
  }
  static void resume_lane(ScriptedMember& rank) {
    rank.lanes[0] = rank.request_lane(0);
    (void)rank.lanes[0].expect<wire::Attached>();
    rank.lanes[0].send(wire::Resume{.incarnation = rank.incarnation, .view_hash = 42}, rank.joined.handle);
    (void)rank.lanes[0].expect<wire::ResumeAck>();
  }
  // Breaks the connection by bad frames until the rank is excluded.
  void break_by_bad_frames(ScriptedMember& rank) const {
    ASSERT_TRUE(eventually_active());
    for (int i = 0; i < 16; ++i) {
      if (i > 0) resume_lane(rank);
      EXPECT_TRUE(eventually_absent(0));
      rank.lanes[0].send_text(std::string(200, 'x'));
      EXPECT_TRUE(rank.lanes[0].closed_within(10 * kSecond));
      EXPECT_TRUE(i == 15 || eventually_absent(1));
    }
  }
  // Needed before a loss: a loss before COMMIT ends the join.
  [[nodiscard]] bool eventually_active() const {
    return eventually([](const auto& j) { return j["session_list"][0]["state"] == "active"; });
  }
  [[nodiscard]] bool eventually_absent(uint64_t count) const {
    return eventually([=](const auto& j) {
      const auto& sessions = j["session_list"];
      return !sessions.empty() && sessions[0]["absent_ranks"] == count;
    });
  }
};

}  // namespace sluice::test
