#include "config/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::config {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  auto parsed = parse_endpoints(text);
  EXPECT_FALSE(parsed.has_value()) << text;
  if (parsed) return {};
  EXPECT_EQ(parsed.error().code, Errc::kInvalidArgument);
  return parsed.error().text;
}

TEST(Endpoints, ParsesHostPortAndWeightWithDefaults) {
  auto parsed = parse_endpoints("a, b:7471,c*2 , [fd00::2]:9*1000,[::1]");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().text;
  const std::vector<Endpoint> expected{
      {"a", 7470, 1}, {"b", 7471, 1}, {"c", 7470, 2}, {"fd00::2", 9, 1000}, {"::1", 7470, 1}};
  EXPECT_EQ(*parsed, expected);
}

TEST(Endpoints, ParsesItsOwnOutput) {
  for (const Endpoint& e :
       {Endpoint{"host.example", 7470, 1}, Endpoint{"::1", 1, 7}, Endpoint{"10.0.0.1", 65535, 1000}}) {
    auto parsed = parse_endpoints(to_string(e));
    ASSERT_TRUE(parsed.has_value()) << to_string(e);
    EXPECT_EQ(parsed->front(), e);
  }
}

TEST(Endpoints, KeepsOrder) {
  auto parsed = parse_endpoints("z,a,m");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ((*parsed)[0].host, "z");
  EXPECT_EQ((*parsed)[2].host, "m");
}

TEST(Endpoints, ErrorsNameTheItemAndTheReason) {
  EXPECT_EQ(error_of("a,b:99999"), "item 2, \"b:99999\": port \"99999\" is not in 1..65535");
  EXPECT_EQ(error_of("a,,b"), "item 2 is empty");
  EXPECT_EQ(error_of("a,"), "item 2 is empty");
  EXPECT_THAT(error_of("a:0"), HasSubstr("port \"0\""));
  EXPECT_THAT(error_of("a:"), HasSubstr("port \"\""));
  EXPECT_THAT(error_of("a:7x"), HasSubstr("port \"7x\""));
  EXPECT_THAT(error_of("a:-1"), HasSubstr("port \"-1\""));
  EXPECT_THAT(error_of("a*0"), HasSubstr("weight \"0\" is not in 1..1000"));
  EXPECT_THAT(error_of("a*1001"), HasSubstr("weight"));
  EXPECT_THAT(error_of("a*"), HasSubstr("weight"));
  EXPECT_THAT(error_of("a*99999999999999999999"), HasSubstr("weight"));
  EXPECT_THAT(error_of(":7470"), HasSubstr("host is empty"));
  EXPECT_THAT(error_of("fd00::2"), HasSubstr("needs brackets"));
  EXPECT_THAT(error_of("[fd00::2"), HasSubstr("missing \"]\""));
  EXPECT_THAT(error_of("[fd00::2]7470"), HasSubstr("expected \":PORT\""));
  EXPECT_THAT(error_of("[host]:1"), HasSubstr("IPv6"));
  EXPECT_THAT(error_of("[fd00::2::3]"), HasSubstr("IPv6"));
  EXPECT_THAT(error_of(std::string(300, 'a')), HasSubstr("253"));
}

TEST(Endpoints, TellsWhatIsWrongWithAnItemThatIsNoAddress) {
  EXPECT_EQ(
      error_of("a:1;b:2"),
      "item 1, \"a:1;b:2\": found more than one reducer; separate them by \",\", in a file by line breaks");
  EXPECT_THAT(error_of("a*2;b"), HasSubstr("more than one reducer"));
  EXPECT_EQ(error_of("c,tcp://h:1"),
            "item 2, \"tcp://h:1\": expected host[:port][*weight], without \"tcp://\"");
  EXPECT_THAT(error_of("http://a"), HasSubstr("without \"http://\""));
  EXPECT_EQ(error_of("a:1:2"), "item 1, \"a:1:2\": found more than one \":\"; expected host[:port][*weight]");
  for (const char* const text : {"'a'", "\"a\",\"b\"", "[\"a\"]", "`a`"})
    EXPECT_THAT(error_of(text), HasSubstr("found a quote"));
  EXPECT_THAT(error_of("\xEF\xBB\xBF"
                       "10.0.0.1,b"),
              HasSubstr("byte order mark"));
  EXPECT_THAT(error_of("a b"), HasSubstr("a space is not allowed"));
  EXPECT_THAT(error_of("a\r\nb"), HasSubstr("a space is not allowed"));
  for (const char* const text : {"10.0.0", "10.0.0.256", "7470", "1.2.3.4.5", "10.0.0.1."})
    EXPECT_THAT(error_of(text), HasSubstr("four numbers from 0 to 255"));
  for (const char* const text : {"a+b", "h\xC3\xB6st", "a|b", "$HOST", "a/b", "@a,b"})
    EXPECT_THAT(error_of(text), HasSubstr("not allowed in a host name"));
}

TEST(Endpoints, AcceptsCarriageReturnsAndOddHosts) {
  auto parsed = parse_endpoints("10.0.0.1\r\n,node_7.a-b.example. ,[fe80::1%eth0]:1,4a\r");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().text;
  EXPECT_EQ(parsed->size(), 4u);
}

TEST(Endpoints, AZoneIsTheNameOfAnInterface) {
  for (const char* const zone : {"eth0", "2", "bond0.100", "br-7f3a_x", "abcdefghijklmno"})
    EXPECT_TRUE(parse_endpoints(std::string("[fe80::1%") + zone + "]:7470")) << zone;
  for (const char* const zone : {"", "eth 0", "eth\x01", "a/b", "a:b", "a%b", "abcdefghijklmnop", "\xC3\xB6"})
    EXPECT_THAT(error_of(std::string("[fe80::1%") + zone + "]:7470"),
                HasSubstr("expected an IPv6 address in"))
        << zone;
}

TEST(Endpoints, RejectsAnEmptyList) {
  EXPECT_EQ(error_of(""), "reducer list is empty");
  EXPECT_EQ(error_of("  "), "reducer list is empty");
}

TEST(Endpoints, RejectsDuplicates) {
  EXPECT_THAT(error_of("a:7470,b,a"), HasSubstr("item 3, \"a\": duplicate of entry 1"));
  EXPECT_TRUE(parse_endpoints("a:7470,a:7471").has_value());
}

TEST(Endpoints, ErrorsContainNoControlCharacters) {
  EXPECT_EQ(error_of("a\x01\n:b").find('\x01'), std::string::npos);
}

}  // namespace
}  // namespace sluice::config
