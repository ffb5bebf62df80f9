#include "config/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::config {
namespace {

using ::testing::HasSubstr;

TEST(Sizes, UsePowersOf1024) {
  EXPECT_EQ(parse_size("0").value(), 0u);
  EXPECT_EQ(parse_size("65536").value(), 65536u);
  EXPECT_EQ(parse_size("64K").value(), 64 * kKiB);
  EXPECT_EQ(parse_size("64k").value(), 64 * kKiB);
  EXPECT_EQ(parse_size("4MiB").value(), 4 * kMiB);
  EXPECT_EQ(parse_size("4MB").value(), 4 * kMiB);
  EXPECT_EQ(parse_size("1G").value(), kGiB);
  EXPECT_EQ(parse_size("2T").value(), 2048 * kGiB);
  EXPECT_EQ(parse_size("12B").value(), 12u);
}

TEST(Sizes, RejectInvalidText) {
  for (const char* text : {"", "K", "-1", "1.5G", "4Q", "4KKB", " 4K", "4K ", "4iB"}) {
    auto parsed = parse_size(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(parsed.error().text, HasSubstr(text));
  }
  EXPECT_THAT(parse_size("17179869184G").error().text, HasSubstr("too large"));
}

TEST(Durations, RequireAUnit) {
  EXPECT_EQ(parse_duration("250us").value(), 250 * kMicrosecond);
  EXPECT_EQ(parse_duration("500ms").value(), 500 * kMillisecond);
  EXPECT_EQ(parse_duration("10s").value(), 10 * kSecond);
  EXPECT_EQ(parse_duration("1m").value(), 60 * kSecond);
  EXPECT_EQ(parse_duration("2h").value(), 7200 * kSecond);
  EXPECT_EQ(parse_duration("0").value(), 0);
}

TEST(Durations, RejectBareNumbersAndInvalidText) {
  EXPECT_THAT(parse_duration("10").error().text, HasSubstr("has no unit"));
  EXPECT_THAT(parse_duration("10d").error().text, HasSubstr("unknown unit"));
  EXPECT_THAT(parse_duration("soon").error().text, HasSubstr("not a duration"));
  EXPECT_THAT(parse_duration("9999999999999h").error().text, HasSubstr("too long"));
}

TEST(Rates, UsePowersOf1000) {
  EXPECT_EQ(parse_rate("200mbit").value(), 200'000'000u);
  EXPECT_EQ(parse_rate("25gbit").value(), 25'000'000'000u);
  EXPECT_EQ(parse_rate("1.5Gbit").value(), 1'500'000'000u);
  EXPECT_EQ(parse_rate("10.5kbit").value(), 10'500u);
  EXPECT_EQ(parse_rate("1234567").value(), 1'234'567u);
  EXPECT_EQ(parse_rate("10000").value(), 10'000u);
  EXPECT_EQ(parse_rate("10tbit").value(), 10'000'000'000'000u);
}

TEST(Rates, RejectWhatNoLinkHas) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "is not a rate"},
      {"fast", "is not a rate"},
      {"-1gbit", "is not a rate"},
      {"-0", "is not a rate"},
      {"nan", "is not a rate"},
      {"inf", "is not a rate"},
      {" 1gbit", "is not a rate"},
      {"+1gbit", "is not a rate"},
      {"25g", "unknown unit"},
      {"25 gbit", "unknown unit"},
      {"25Gbps", "unknown unit"},
      {"1e3", "unknown unit"},
      {"0x10", "unknown unit"},
      {"0", "is too small"},
      {"0gbit", "is too small"},
      {"9999", "is too small"},
      {"25", "is too small"},
      {"10.1tbit", "is too large"},
      {"10000000000001", "is too large"},
      {"99999999999999999999999", "is too large"},
  };
  for (const auto& [text, reason] : cases) {
    const auto parsed = parse_rate(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(parsed.error().text, HasSubstr("\"" + std::string(text) + "\" "));
    EXPECT_THAT(parsed.error().text, HasSubstr(reason)) << text;
  }
}

TEST(Rates, ParseTheirOwnOutput) {
  for (const uint64_t rate :
       {uint64_t{10'001}, uint64_t{15'000}, uint64_t{200'000'000}, uint64_t{10'000'000'000'000}})
    EXPECT_EQ(parse_rate(rate_text(rate)).value(), rate) << rate_text(rate);
  EXPECT_EQ(rate_text(25'000'000'000), "25gbit");
  EXPECT_EQ(rate_text(1'500'000'000), "1500mbit");
  EXPECT_EQ(rate_text(999), "999");
}

TEST(SizesAndDurations, ParseTheirOwnOutput) {
  for (const uint64_t v : {uint64_t{0}, uint64_t{1}, uint64_t{1536}, 64 * kKiB, 3 * kMiB, kGiB}) {
    EXPECT_EQ(parse_size(size_text(v)).value(), v) << size_text(v);
  }
  EXPECT_EQ(size_text(64 * kKiB), "64K");
  for (const Nanos v : {Nanos{0}, 7 * kMicrosecond, 500 * kMillisecond, 90 * kSecond, 3600 * kSecond}) {
    EXPECT_EQ(parse_duration(duration_text(v)).value(), v) << duration_text(v);
  }
  EXPECT_EQ(duration_text(90 * kSecond), "90s");
}

TEST(Numbers, HaveTheirShortestText) {
  EXPECT_EQ(number_text(0.9), "0.9");
  EXPECT_EQ(number_text(0.03F), "0.03");  // as a double: 0.029999999329447746
}

}  // namespace
}  // namespace sluice::config
