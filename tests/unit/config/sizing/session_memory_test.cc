// Compares the sizing library's copy of the session memory formula with the reducer's and the protocol's.
#include "config/sizing/session_memory.h"

#include <gtest/gtest.h>

#include "reducer/reducer.h"
#include "reducer/slots/slot_arena.h"
#include "wire/messages.h"
#include "wire/view.h"

namespace sluice::config {
namespace {

TEST(SessionMemory, MatchesTheReducer) {
  constexpr uint32_t kWindow = 2 * kMiB;  // SLUICE_WINDOW's default
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u, 9u, 64u, 100u, 2048u}) {
    for (const uint32_t reducers : {1u, 2u, 5u, 25u, 64u, 1000u}) {
      for (const uint32_t lanes : {1u, 2u, 3u, 15u, 64u}) {
        const uint32_t slot = wire::slot_bytes_for(ranks, reducers * lanes);
        const uint32_t slots = wire::slots_per_lane(kWindow, slot, static_cast<uint16_t>(lanes));
        const uint64_t bytes_per_lane =
            reducer::SlotArena::bytes_for({.ranks = ranks, .slots = slots, .slot_bytes = slot});
        EXPECT_EQ(session_bytes(ranks, reducers, lanes), uint64_t{lanes} * bytes_per_lane)
            << ranks << " ranks, " << reducers << " reducers, " << lanes << " lanes";
      }
    }
  }
}

TEST(SessionMemory, MatchesLimitsAndDefaults) {
  EXPECT_EQ(kMaxRanks, wire::kMaxRanks);
  EXPECT_EQ(kMaxReducers, wire::kMaxReducers);
  EXPECT_EQ(kMaxLanes, wire::kMaxLanes);
  EXPECT_EQ(kDefaultLanes, reducer::ReducerOptions{}.lanes_per_session);
}

TEST(SessionMemory, GrowsWithRanksAndSessions) {
  for (uint64_t n = 1; n < kMaxRanks; ++n)
    ASSERT_LT(session_bytes(n, 8, 2), session_bytes(n + 1, 8, 2) + session_bytes(1, 8, 2)) << n;
  EXPECT_LT(resident_bytes(1, 8, 2, kMiB), resident_bytes(2, 8, 2, kMiB));
}

}  // namespace
}  // namespace sluice::config
