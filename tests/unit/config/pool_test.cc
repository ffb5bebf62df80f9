#include "config/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(std::string_view text) {
  const auto parsed = parse_pool_file(text);
  return parsed ? "" : parsed.error().text;
}

class PoolFileFixture : public ::testing::Test {
 protected:
  PoolFileFixture() : path_(::testing::TempDir() + "sluice-pool-" + std::to_string(::getpid())) {}
  ~PoolFileFixture() override { static_cast<void>(std::remove(path_.c_str())); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  const std::string path_;
};

TEST(PoolText, ParsesOneAddressPerLineAndComments) {
  const auto parsed = parse_pool_file("# the pool\n\na\n  b:7471*3 # the large one\r\n[fd00::2]:9\t\n#c");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().text;
  EXPECT_EQ(*parsed,
            (std::vector<Endpoint>{
                {.host = "a"}, {.host = "b", .port = 7471, .weight = 3}, {.host = "fd00::2", .port = 9}}));
}

TEST(PoolText, AcceptsAnMpiHostfile) {
  const auto parsed = parse_pool_file("j-worker-0.j.ns.svc slots=8\nb:7471*2 slots=1 max_slots=4 # two\n");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().text;
  EXPECT_EQ(*parsed, (std::vector<Endpoint>{{.host = "j-worker-0.j.ns.svc"},
                                            {.host = "b", .port = 7471, .weight = 2}}));
  EXPECT_THAT(error_of("a slots=many"), StartsWith("1:1: \"a slots=many\": a space is not allowed"));
  EXPECT_THAT(error_of("a cores=4"), StartsWith("1:1: "));
}

TEST(PoolText, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("a\n  b:99999\n"), "2:3: \"b:99999\": port \"99999\" is not in 1..65535");
  EXPECT_THAT(error_of("a\n#\n\n\tb*0"), StartsWith("4:2: \"b*0\": weight"));
  EXPECT_THAT(error_of("a, b"), StartsWith("1:1: \"a, b\": found more than one reducer"));
  EXPECT_EQ(error_of("a\nb\na:7470"), "3:1: \"a:7470\": duplicate of entry 1");
  EXPECT_EQ(error_of("# empty\n"), "1:1: expected host[:port][*weight], found an empty list");
  EXPECT_EQ(error_of(""), "1:1: expected host[:port][*weight], found an empty list");
}

TEST_F(PoolFileFixture, AtSignNamesAFile) {
  write("a\nb\n");
  const auto pool = read_pool("@" + path_);
  ASSERT_TRUE(pool.has_value()) << pool.error().text;
  EXPECT_EQ(pool->reducers.size(), 2u);
  EXPECT_EQ(pool->file, path_);
  const auto list = read_pool("a,b,c");
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->reducers.size(), 3u);
  EXPECT_EQ(list->file, "");
}

TEST_F(PoolFileFixture, ErrorsNameTheFile) {
  EXPECT_THAT(read_pool("@" + path_).error().text, HasSubstr(path_));
  EXPECT_EQ(read_pool("@" + path_).error().code, Errc::kSystem);
  EXPECT_EQ(read_pool("@").error().code, Errc::kInvalidArgument);
  write("a\nb:x\n");
  EXPECT_EQ(read_pool("@" + path_).error().text, path_ + ":2:1: \"b:x\": port \"x\" is not in 1..65535");
  write(std::string(kMaxPoolFile, '#') + "\na");
  EXPECT_THAT(read_pool("@" + path_).error().text, HasSubstr("reducer list is longer than"));
}

TEST_F(PoolFileFixture, WatchReportsAChangeOnceTheFileIsStable) {
  write("a\n");
  FileWatch watch(path_);
  EXPECT_FALSE(watch.has_changed());
  EXPECT_TRUE(watch.has_changed()) << "the earlier contents are unknown";
  EXPECT_FALSE(watch.has_changed());
  write("a\nb\n");
  EXPECT_FALSE(watch.has_changed()) << "the file may still be written";
  EXPECT_TRUE(watch.has_changed());
  EXPECT_FALSE(watch.has_changed());
  write("a\nb\nc\n");
  EXPECT_FALSE(watch.has_changed());
  write("a\nb\nc\nd\n");
  EXPECT_FALSE(watch.has_changed()) << "the file was still being written";
  EXPECT_TRUE(watch.has_changed());
}

TEST_F(PoolFileFixture, WatchIgnoresAMissingFile) {
  write("a\n");
  FileWatch watch(path_);
  static_cast<void>(watch.has_changed());
  EXPECT_TRUE(watch.has_changed());
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  EXPECT_FALSE(watch.has_changed());
  EXPECT_FALSE(watch.has_changed());
  write("a\nb\n");
  EXPECT_FALSE(watch.has_changed());
  EXPECT_TRUE(watch.has_changed());
}

}  // namespace
}  // namespace sluice::config
