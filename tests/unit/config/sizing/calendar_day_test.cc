#include "config/sizing/calendar_day.h"

#include <gtest/gtest.h>

namespace sluice::config {
namespace {

TEST(CalendarDay, CountsFrom1970) {
  EXPECT_EQ(parse_day("1970-01-01"), 0);
  EXPECT_EQ(parse_day("1970-02-01"), 31);
  EXPECT_EQ(parse_day("2024-03-01").value_or(0) - parse_day("2024-02-28").value_or(0), 2);
  EXPECT_EQ(parse_day("2025-03-01").value_or(0) - parse_day("2025-02-28").value_or(0), 1);
}

TEST(CalendarDay, RejectsInvalidDates) {
  for (const char* text : {"", "undated", "2025-02-29", "2025-13-01", "2025-00-01", "2025-01-32", "25-01-01",
                           "2025/01/01", "2025-1-1", "+025-01-01", "2025-01-01 "})
    EXPECT_FALSE(parse_day(text).has_value()) << text;
}

TEST(CalendarDay, TodayIsLaterThanThisTest) {
  EXPECT_GT(today(), parse_day("2026-11-01"));
}

}  // namespace
}  // namespace sluice::config
