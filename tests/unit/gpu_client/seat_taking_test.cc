#include "gpu_client/engine/seat_taking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "gpu_client/engine/join.h"
#include "tests/support/scripted_reducer.h"
#include "tests/unit/gpu_client/answering_reducer.h"

namespace sluice::engine {
namespace {

using sluice::test::ScriptedReducer;
using test::AnsweringReducer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Connection = AnsweringReducer::Connection;

constexpr uint64_t kId = 50;
constexpr uint64_t kIncarnation = 99;

class NewcomerTest : public ::testing::Test {
 protected:
  NewcomerTest() {
    first_.window_bytes = 256 * kKiB;
    first_.slot_bytes = 16 * kKiB;
    first_.reducers = {{.id = 70, .lanes = 1, .weight = 1, .alive = true},
                       {.id = 60, .lanes = 1, .weight = 1, .alive = true}};
    who_.ranks = 2;
    who_.survives = true;
  }
  [[nodiscard]] Result<Seat> join() {
    const NewcomerTerms terms{.address = {.host = "localhost", .port = reducer_.port(), .weight = 3},
                              .reducer = kId,
                              .incarnation = kIncarnation,
                              .first = &first_,
                              .lanes = 2,
                              .join_timeout = 7 * kSecond};
    return join_newcomer(terms, who_, monotonic_now() + 20 * kSecond);
  }
  // The join of a session that has lanes lane connections there.
  static void joined(Connection& c) {
    static_cast<void>(c.expect<wire::Join>());
    c.send(wire::Joined{.handle = 6, .heartbeat_ms = 1000, .peer_timeout_ms = 9000}, 6);
  }

  wire::View first_;
  Identity who_;
  AnsweringReducer reducer_;
};

TEST_F(NewcomerTest, TakesASeatAndItsLanes) {
  const auto lane = [&](uint32_t number) {
    return [this, number](Connection& c) {
      const auto hello = AnsweringReducer::welcome(c, kId, 4);
      EXPECT_EQ(hello.purpose, wire::Purpose::kLane);
      EXPECT_EQ(hello.lane, number);
      EXPECT_EQ(hello.incarnation, kIncarnation);
      const auto attach = c.expect<wire::Attach>();
      EXPECT_EQ(attach.handle, 6u);
      EXPECT_EQ(attach.view_hash, wire::view_hash(first_));
      c.send(wire::Attached{.slots = 8}, 6);  // 256 / 16 / 2
    };
  };
  reducer_.play({[&](Connection& c) {
                   const auto hello = AnsweringReducer::welcome(c, kId, 4);
                   EXPECT_EQ(hello.purpose, wire::Purpose::kControl);
                   EXPECT_EQ(hello.incarnation, kIncarnation);
                   EXPECT_EQ(hello.features, wire::kFeaturesSurvive);
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
  auto seat = join();
  ASSERT_TRUE(seat.has_value()) << seat.error().text;
  EXPECT_EQ(seat->id, kId);
  EXPECT_EQ(seat->handle, 6u);
  EXPECT_EQ(seat->slots, 8u);
  EXPECT_EQ(seat->lanes.size(), 2u);
  EXPECT_EQ(seat->peer_timeout_ms, 9000u);
  EXPECT_EQ(seat->name, "reducer localhost:" + std::to_string(reducer_.port()));
  EXPECT_EQ(seat->address.host, "127.0.0.1") << "where it was reached";
  EXPECT_EQ(seat->address.port, reducer_.port());
  EXPECT_EQ(seat->address.weight, 3);
}

TEST_F(NewcomerTest, TakesNoOtherProcess) {
  reducer_.play({[](Connection& c) { static_cast<void>(AnsweringReducer::welcome(c, kId + 1)); }});
  const auto seat = join();
  ASSERT_FALSE(seat.has_value());
  EXPECT_THAT(seat.error().text, HasSubstr("another process"));
}

TEST_F(NewcomerTest, TakesNoOtherProcessForALane) {
  reducer_.play({[](Connection& c) {
                   static_cast<void>(AnsweringReducer::welcome(c, kId));
                   joined(c);
                 },
                 [](Connection& c) { static_cast<void>(AnsweringReducer::welcome(c, kId + 1)); }});
  const auto seat = join();
  ASSERT_FALSE(seat.has_value());
  EXPECT_THAT(seat.error().text, HasSubstr("another process"));
}

TEST_F(NewcomerTest, TakesNoneThatSurvivesNothing) {
  reducer_.play(
      {[](Connection& c) { static_cast<void>(AnsweringReducer::welcome(c, kId, 2, wire::kFeatureResume)); }});
  const auto seat = join();
  ASSERT_FALSE(seat.has_value());
  EXPECT_EQ(seat.error().code, Errc::kUnsupported);
}

TEST_F(NewcomerTest, TakesNoOtherNumberOfSlots) {
  reducer_.play({[](Connection& c) {
                   static_cast<void>(AnsweringReducer::welcome(c, kId));
                   joined(c);
                 },
                 [](Connection& c) {
                   static_cast<void>(AnsweringReducer::welcome(c, kId));
                   static_cast<void>(c.expect<wire::Attach>());
                   c.send(wire::Attached{.slots = 9}, 6);
                 }});
  const auto seat = join();
  ASSERT_FALSE(seat.has_value());
  EXPECT_EQ(seat.error().code, Errc::kMismatch);
}

TEST_F(NewcomerTest, TriesOnce) {
  first_.reducers.resize(wire::kMaxReducers);
  EXPECT_EQ(join().error().code, Errc::kTooMany);
  first_.reducers.resize(2);
  reducer_.play({[](Connection& c) { c.close(); }});
  EXPECT_FALSE(join().has_value());
  reducer_.finish();
  EXPECT_FALSE(reducer_.called());
}

class SurvivingJoinTest : public ::testing::Test {
 protected:
  static Result<Membership> join(const std::vector<ScriptedReducer*>& reducers, bool survives) {
    JoinOptions o;
    for (const ScriptedReducer* r : reducers)
      o.reducers.push_back({.host = "127.0.0.1", .port = r->port(), .weight = 1});
    o.who.ranks = 1;
    o.who.survives = survives;
    return join_session(o);
  }
};

TEST_F(SurvivingJoinTest, SurvivesWhereAllCan) {
  ScriptedReducer a({.id = 1, .features = wire::kFeaturesSurvive | 1 << 9});
  ScriptedReducer b({.id = 2, .features = wire::kFeaturesSurvive});
  auto membership = join({&a, &b}, true);
  ASSERT_TRUE(membership.has_value()) << membership.error().text;
  EXPECT_TRUE(membership->survives);
  membership = {};
  a.join();
  EXPECT_THAT(a.features_seen(), ElementsAre(wire::kFeaturesSurvive, wire::kFeaturesSurvive));
}

TEST_F(SurvivingJoinTest, DoesNotSurviveUnasked) {
  ScriptedReducer a({.id = 1, .features = wire::kFeaturesSurvive});
  auto membership = join({&a}, false);
  ASSERT_TRUE(membership.has_value()) << membership.error().text;
  EXPECT_FALSE(membership->survives);
  membership = {};
  a.join();
  EXPECT_THAT(a.features_seen(), ElementsAre(0, 0));
}

// The one that can is told that the session does not: it has no other way to know.
TEST_F(SurvivingJoinTest, TakesTheWishBackWhereOneCannot) {
  ScriptedReducer a({.id = 1, .features = wire::kFeaturesSurvive});
  ScriptedReducer b({.id = 2, .features = wire::kFeatureResume});
  auto membership = join({&a, &b}, true);
  ASSERT_TRUE(membership.has_value()) << membership.error().text;
  EXPECT_FALSE(membership->survives);
  membership = {};
  a.join();
  EXPECT_THAT(a.features_seen(), ElementsAre(wire::kFeaturesSurvive, 0, 0)) << "greeted twice, then a lane";
}

}  // namespace
}  // namespace sluice::engine
