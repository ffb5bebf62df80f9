#include "config/discovery/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/discovery/natural_order.h"

namespace sluice::config::discovery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(std::string_view text) {
  auto list = expand_hostlist(text);
  EXPECT_TRUE(list.has_value()) << list.error().text;
  return list.value_or(std::vector<std::string>());
}

std::string error_of(std::string_view text) {
  const auto list = expand_hostlist(text);
  return list ? "" : list.error().text;
}

TEST(Hostlist, ExpandsLikeSlurm) {
  EXPECT_THAT(names("a[1-3,07-09],b,c[0-1]n[2-3]"),
              ElementsAre("a1", "a2", "a3", "a07", "a08", "a09", "b", "c0n2", "c0n3", "c1n2", "c1n3"));
  EXPECT_THAT(names("a"), ElementsAre("a"));
  EXPECT_THAT(names("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(names("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(names("n[5]-ib.x.org"), ElementsAre("n5-ib.x.org"));
  EXPECT_THAT(names("[1-2]"), ElementsAre("1", "2"));
}

TEST(Hostlist, ErrorsNameTheColumn) {
  EXPECT_EQ(error_of(""), "column 1: expected a host name");
  EXPECT_EQ(error_of("a,,b"), "column 3: expected a host name");
  EXPECT_EQ(error_of("a,"), "column 3: expected a host name");
  EXPECT_EQ(error_of("a[1-2"), "column 2: missing \"]\"");
  EXPECT_EQ(error_of("a[]"), "column 3: expected a number");
  EXPECT_EQ(error_of("a[1-]"), "column 5: expected a number");
  EXPECT_EQ(error_of("a[1x]"), "column 4: expected \",\", \"-\" or \"]\"");
  EXPECT_EQ(error_of("a[3-1]"), "column 3: end of range is below its start");
  EXPECT_EQ(error_of("a]"), "column 2: character is not allowed in a host name");
  EXPECT_EQ(error_of("a b"), "column 2: character is not allowed in a host name");
  EXPECT_EQ(error_of("a[1[2]]"), "column 4: expected \",\", \"-\" or \"]\"");
  EXPECT_EQ(error_of("a[99999999999999999999]"), "column 3: number has more than 18 digits");
  EXPECT_THAT(error_of(std::string(300, 'a')), HasSubstr("host name is longer than 253 characters"));
}

// A few bytes can denote billions of hosts. None of these lists may cost time or memory.
TEST(Hostlist, IsBounded) {
  EXPECT_THAT(error_of("a[1-999999999]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(error_of("a[0-999999999999999999]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(error_of("a[1-60000][1-60000][1-60000]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(error_of("a[1-60000],b[1-60000]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(error_of("a[1-65536],b"), HasSubstr("more than 65536 hosts"));
  EXPECT_EQ(names("a[1-65536]").size(), kMaxHosts);
}

TEST(NaturalOrder, ComparesNumbersByValue) {
  EXPECT_TRUE(natural_less("r-2", "r-10"));
  EXPECT_FALSE(natural_less("r-10", "r-2"));
  EXPECT_TRUE(natural_less("r-2.z", "r-10.a"));
  EXPECT_TRUE(natural_less("r-9", "r-99999999999999999999999999"));
  EXPECT_FALSE(natural_less("a", "a"));
  EXPECT_TRUE(natural_less("a", "ab"));
  // Different texts of the same value still have a consistent order.
  EXPECT_NE(natural_less("r01", "r1"), natural_less("r1", "r01"));
  EXPECT_NE(natural_less("r01x1", "r1x01"), natural_less("r1x01", "r01x1"));
}

}  // namespace
}  // namespace sluice::config::discovery
