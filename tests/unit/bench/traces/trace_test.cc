#include "bench/traces/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;

TEST(Trace, TextRoundTrip) {
  const Trace trace{.comments = {"two buckets", ""}, .buckets = {{0, 4}, {1500, 104857600}, {1500, 8}}};
  const std::string text = trace_text(trace);
  EXPECT_EQ(text, "# two buckets\n# \n0 4\n1500 104857600\n1500 8\n");
  const auto read = parse_trace(text, "t", 4);
  ASSERT_TRUE(read.has_value()) << read.error().text;
  EXPECT_EQ(read->comments, trace.comments);
  EXPECT_EQ(read->buckets, trace.buckets);
  EXPECT_EQ(read->bytes(), 104857612u);
  EXPECT_EQ(read->compute_us(), 1500u);
}

TEST(Trace, BlanksEmptyLinesAndAMissingLastNewlineAreAccepted) {
  const auto read = parse_trace("\n  # indented\r\n 10\t20 \r\n\n30 40", "t", 4);
  ASSERT_TRUE(read.has_value()) << read.error().text;
  EXPECT_EQ(read->buckets, (std::vector<Bucket>{{10, 20}, {30, 40}}));
  EXPECT_EQ(read->comments, std::vector<std::string>{"indented"});
}

struct BadText {
  const char* text;
  const char* error;
};

TEST(Trace, BadTextIsRefusedWithTheLineNumber) {
  const BadText bad[] = {
      {"", "t: expected at least one line"},
      {"# nothing else\n", "t: expected at least one line"},
      {"0 4\n-5 4\n", "t line 2: ready_us \"-5\": expected an integer"},
      {"0 4\n\n5 -4\n", "t line 3: bytes \"-4\": expected an integer"},
      {"1.5 4\n", "t line 1: ready_us \"1.5\": expected an integer"},
      {"0x10 4\n", ": expected an integer"},
      {"tea 4\n", "t line 1: ready_us \"tea\": expected an integer"},
      {"7\n", "t line 1: bytes \"\": expected an integer"},
      {"7 4 1\n", "t line 1: expected \"<ready_us> <bytes>\", found more words"},
      {"7 0\n", "t line 1: bytes \"0\" is below 1"},
      {"7 8\n7 6\n", "t line 2: bytes \"6\" is not a multiple of the element size, 4 B"},
      {"# first\n7 4\n6 4\n", "t line 3: 6 us is before the 7 us of the previous bucket"},
      {"7 68719476737\n", "t line 1: bytes \"68719476737\" is above 68719476736"},
      {"7 99999999999999999999999\n", "t line 1: bytes \"99999999999999999999999\" is above 68719476736"},
      {"86400000001 4\n", "t line 1: ready_us \"86400000001\" is above 86400000000"},
  };
  for (const BadText& b : bad) {
    const auto read = parse_trace(b.text, "t", 4);
    ASSERT_FALSE(read.has_value()) << b.text;
    EXPECT_EQ(read.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(read.error().text, HasSubstr(b.error));
  }
}

TEST(Trace, TooManyBucketsAreRefused) {
  std::string text;
  for (size_t i = 0; i < kMaxBuckets; ++i) text += "1 4\n";
  EXPECT_TRUE(parse_trace(text, "t", 4).has_value());
  const auto read = parse_trace(text + "1 4\n", "t", 4);
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error().text, HasSubstr("t line 1000001: more than 1000000 buckets"));
}

TEST(Trace, MissingFileIsNamedInTheError) {
  const auto read = read_trace("/nowhere/at/all", 4);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::kSystem);
  EXPECT_THAT(read.error().text, HasSubstr("/nowhere/at/all"));
}

TEST(Trace, ScaleTimesKeepsSizes) {
  const Trace trace{.comments = {}, .buckets = {{10, 4}, {30, 8}}};
  EXPECT_EQ(scale_times(trace, 0).buckets, (std::vector<Bucket>{{0, 4}, {0, 8}}));
  EXPECT_EQ(scale_times(trace, 2.5).buckets, (std::vector<Bucket>{{25, 4}, {75, 8}}));
}

}  // namespace
}  // namespace sluice::bench
