#include "gpu_client/engine/join/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "tests/support/scripted_reducer.h"
#include "tests/unit/gpu_client/scripted_listener.h"

namespace sluice::engine {
namespace {

using sluice::test::ScriptedReducer;
using test::ScriptedListener;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Connection = ScriptedListener::Connection;

constexpr uint64_t kId = 50;
constexpr uint64_t kIncarnation = 99;

class AddedReducerTest : public ::testing::Test {
 protected:
  AddedReducerTest() {
    first_.window_bytes = 256 * kKiB;
    first_.slot_bytes = 16 * kKiB;
    first_.reducers = {{.id = 70, .lanes = 1, .weight = 1, .alive = true},
                       {.id = 60, .lanes = 1, .weight = 1, .alive = true}};
    options_.identity.ranks = 2;
    options_.identity.fault_tolerant = true;
    options_.lanes = 2;
    options_.join_timeout = 7 * kSecond;
  }
  [[nodiscard]] Result<ReducerReservation> join() {
    const config::Endpoint address{.host = "localhost", .port = reducer_.port(), .weight = 3};
    return join_added_reducer(options_, first_, kIncarnation, address, kId, monotonic_now() + 20 * kSecond);
  }
  void expect_error(Errc code, const char* text) {
    const auto reservation = join();
    ASSERT_FALSE(reservation.has_value());
    EXPECT_EQ(reservation.error().code, code);
    EXPECT_THAT(reservation.error().text, HasSubstr(text));
  }
  static void is_replaced(Connection& c) { static_cast<void>(ScriptedListener::welcome(c, kId + 1)); }
  // Receives JOIN and sends JOINED.
  static void answer_join(Connection& c) {
    static_cast<void>(ScriptedListener::welcome(c, kId));
    static_cast<void>(c.expect<wire::Join>());
    c.send(wire::Joined{.handle = 6, .heartbeat_ms = 1000, .peer_timeout_ms = 9000}, 6);
  }

  wire::View first_;
  JoinOptions options_;
  ScriptedListener reducer_;
};

TEST_F(AddedReducerTest, MakesAReservationAndAttachesItsLanes) {
  const auto lane = [&](uint32_t number) {
    return [this, number](Connection& c) {
      const auto hello = ScriptedListener::welcome(c, kId, 4);
      EXPECT_EQ(hello.purpose, wire::Purpose::kLane);
      EXPECT_EQ(hello.lane, number);
      EXPECT_EQ(hello.incarnation, kIncarnation);
      const auto attach = c.expect<wire::Attach>();
      EXPECT_EQ(attach.handle, 6u);
      EXPECT_EQ(attach.view_hash, wire::view_hash(first_));
      c.send(wire::Attached{.slots = 8}, 6);  // 256 / 16 / 2
    };
  };
  reducer_.serve({[&](Connection& c) {
                    const auto hello = ScriptedListener::welcome(c, kId, 4);
                    EXPECT_EQ(hello.purpose, wire::Purpose::kControl);
                    EXPECT_EQ(hello.incarnation, kIncarnation);
                    EXPECT_EQ(hello.features, wire::kFaultToleranceFeatures | wire::kFeatureTreeOrder);
                    const auto join = c.expect<wire::Join>();
                    EXPECT_EQ(join.view_hash, wire::view_hash(first_));
                    EXPECT_EQ(join.window_bytes, first_.window_bytes);
                    EXPECT_EQ(join.slot_bytes, first_.slot_bytes);
                    EXPECT_EQ(join.lanes, 2);
                    EXPECT_EQ(join.join_timeout_ms, 7000u);
                    EXPECT_THAT(join.reducers, ElementsAre(70, 60, kId));
                    EXPECT_EQ(join.reducer_index, 2);
                    c.send(wire::Joined{.handle = 6, .heartbeat_ms = 1000, .peer_timeout_ms = 9000}, 6);
                  },
                  lane(0), lane(1)});
  auto reservation = join();
  ASSERT_TRUE(reservation.has_value()) << reservation.error().text;
  EXPECT_EQ(reservation->id, kId);
  EXPECT_EQ(reservation->handle, 6u);
  EXPECT_EQ(reservation->slots, 8u);
  EXPECT_EQ(reservation->lanes.size(), 2u);
  EXPECT_EQ(reservation->peer_timeout_ms, 9000u);
  EXPECT_EQ(reservation->name, "reducer localhost:" + std::to_string(reducer_.port()));
  EXPECT_EQ(reservation->address.host, "127.0.0.1") << "the resolved address";
  EXPECT_EQ(reservation->address.port, reducer_.port());
  EXPECT_EQ(reservation->address.weight, 3);
}

TEST_F(AddedReducerTest, RejectsAnotherProcess) {
  reducer_.serve({is_replaced});
  expect_error(Errc::kReducerLost, "another process");
}

TEST_F(AddedReducerTest, RejectsAnotherProcessForALane) {
  reducer_.serve({answer_join, is_replaced});
  expect_error(Errc::kReducerLost, "another process");
}

TEST_F(AddedReducerTest, RejectsAReducerWithoutFaultTolerance) {
  reducer_.serve(
      {[](Connection& c) { static_cast<void>(ScriptedListener::welcome(c, kId, 2, wire::kFeatureResume)); }});
  expect_error(Errc::kUnsupported, "does not support fault-tolerant sessions");
}

TEST_F(AddedReducerTest, RejectsAReducerOfAnEarlierReleaseUnlessTheSessionSumsInGroups) {
  const auto earlier = [](Connection& c) {
    return ScriptedListener::welcome(c, kId, 2, wire::kFaultToleranceFeatures);
  };
  reducer_.serve({[&](Connection& c) { static_cast<void>(earlier(c)); },
                  [&](Connection& c) {
                    EXPECT_EQ(earlier(c).features, wire::kFaultToleranceFeatures);
                    EXPECT_EQ(c.expect<wire::Join>().reducers.back(), kId);
                    c.close();
                  }});
  expect_error(Errc::kUnsupported, "is of an earlier release, which cannot sum in the order of this session");
  options_.identity.order = wire::SumOrder::kGroups;
  EXPECT_NE(join().error().code, Errc::kUnsupported);
}

TEST_F(AddedReducerTest, RejectsAnotherNumberOfSlots) {
  reducer_.serve({answer_join, [](Connection& c) {
                    static_cast<void>(ScriptedListener::welcome(c, kId));
                    static_cast<void>(c.expect<wire::Attach>());
                    c.send(wire::Attached{.slots = 9}, 6);
                  }});
  expect_error(Errc::kMismatch, "grants 9 slots");
}

TEST_F(AddedReducerTest, DoesNotRetry) {
  first_.reducers.resize(wire::kMaxReducers);
  EXPECT_EQ(join().error().code, Errc::kTooMany);
  first_.reducers.resize(2);
  reducer_.serve({[](Connection& c) { c.close(); }});
  EXPECT_FALSE(join().has_value());
  reducer_.finish();
  EXPECT_FALSE(reducer_.has_connection());
}

class FaultTolerantJoinTest : public ::testing::Test {
 protected:
  // Joins, and closes the connections again.
  static bool join_is_fault_tolerant(const std::vector<ScriptedReducer*>& reducers, bool fault_tolerant) {
    JoinOptions o;
    for (const ScriptedReducer* r : reducers)
      o.reducers.push_back({.host = "127.0.0.1", .port = r->port(), .weight = 1});
    o.identity.ranks = 1;
    o.identity.fault_tolerant = fault_tolerant;
    o.identity.order = wire::SumOrder::kGroups;
    const auto membership = join_session(o);
    EXPECT_TRUE(membership.has_value()) << membership.error().text;
    return membership && membership->fault_tolerant;
  }
};

TEST_F(FaultTolerantJoinTest, IsFaultTolerantIfAllReducersSupportIt) {
  ScriptedReducer a({.id = 1, .features = wire::kFaultToleranceFeatures | 1 << 9});
  ScriptedReducer b({.id = 2, .features = wire::kFaultToleranceFeatures});
  EXPECT_TRUE(join_is_fault_tolerant({&a, &b}, true));
  a.join();
  EXPECT_THAT(a.features_seen(), ElementsAre(wire::kFaultToleranceFeatures, wire::kFaultToleranceFeatures));
}

TEST_F(FaultTolerantJoinTest, IsNotFaultTolerantUnlessRequested) {
  ScriptedReducer a({.id = 1, .features = wire::kFaultToleranceFeatures});
  EXPECT_FALSE(join_is_fault_tolerant({&a}, false));
  a.join();
  EXPECT_THAT(a.features_seen(), ElementsAre(0, 0));
}

// HELLO is repeated without the feature, because the reducer that supports it must learn that the session
// is not fault-tolerant.
TEST_F(FaultTolerantJoinTest, WithdrawsTheFeatureIfOneReducerLacksIt) {
  ScriptedReducer a({.id = 1, .features = wire::kFaultToleranceFeatures});
  ScriptedReducer b({.id = 2, .features = wire::kFeatureResume});
  EXPECT_FALSE(join_is_fault_tolerant({&a, &b}, true));
  a.join();
  EXPECT_THAT(a.features_seen(), ElementsAre(wire::kFaultToleranceFeatures, 0, 0))
      << "two handshakes, then one for the lane";
}

// The order of sums of a session of one rank, which asks for the tree, and the features of its HELLOs.
wire::SumOrder order_of_session(ScriptedReducer& a, ScriptedReducer& b) {
  JoinOptions o;
  for (const ScriptedReducer* r : {&a, &b})
    o.reducers.push_back({.host = "127.0.0.1", .port = r->port(), .weight = 1});
  o.identity.ranks = 1;
  const auto membership = join_session(o);
  EXPECT_TRUE(membership.has_value()) << membership.error().text;
  return membership ? membership->order : wire::SumOrder::kGroups;
}

TEST(SumOrderOfAJoin, IsTheTreeIfAllReducersSupportIt) {
  ScriptedReducer a({.id = 1, .features = wire::kFeatureTreeOrder});
  ScriptedReducer b({.id = 2, .features = wire::kFeatureTreeOrder});
  EXPECT_EQ(order_of_session(a, b), wire::SumOrder::kTree);
  a.join();
  EXPECT_THAT(a.features_seen(), ElementsAre(wire::kFeatureTreeOrder, wire::kFeatureTreeOrder));
}

// HELLO is repeated without the feature, so that the reducer that supports it learns the order too.
TEST(SumOrderOfAJoin, IsThatOfEarlierReleasesIfOneReducerIsOfOne) {
  ScriptedReducer a({.id = 1, .features = wire::kFeatureTreeOrder});
  ScriptedReducer b({.id = 2, .features = 0});
  EXPECT_EQ(order_of_session(a, b), wire::SumOrder::kGroups);
  a.join();
  EXPECT_THAT(a.features_seen(), ElementsAre(wire::kFeatureTreeOrder, 0, 0));
}

}  // namespace
}  // namespace sluice::engine
