#include "reducer/control/due_times.h"

#include <gtest/gtest.h>

namespace sluice::reducer {
namespace {

TEST(DueTimes, GivesWhatHasBeenDueForLongest) {
  DueTimes<uint32_t> due;
  due.set(1, 30);
  due.set(2, 10);
  due.set(3, 20);
  EXPECT_EQ(due.first(9), std::nullopt);
  EXPECT_EQ(due.first(10), 2U);
  EXPECT_EQ(due.first(1000), 2U) << "it stays due";
  due.remove(2);
  due.remove(2);
  EXPECT_EQ(due.first(1000), 3U);
}

TEST(DueTimes, MovesThemEitherWayOrOnlyForward) {
  DueTimes<uint32_t> due;
  due.set(1, 30);
  due.set(1, 50);
  EXPECT_EQ(due.first(49), std::nullopt);
  due.bring_forward(1, 60);
  EXPECT_EQ(due.first(50), 1U);
  due.bring_forward(1, 5);
  EXPECT_EQ(due.first(5), 1U);
  due.bring_forward(2, 4);
  EXPECT_EQ(due.first(5), 2U);
}

}  // namespace
}  // namespace sluice::reducer
