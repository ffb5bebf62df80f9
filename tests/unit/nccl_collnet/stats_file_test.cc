#include "nccl_plugin/host/stats_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

namespace sluice::nccl {
namespace {

class StatsFileFixture : public ::testing::Test {
 protected:
  StatsFileFixture() {
    char pattern[] = "/tmp/sluice-stats-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~StatsFileFixture() override {
    (void)unlink(path().c_str());
    (void)rmdir(folder_.c_str());
  }
  [[nodiscard]] std::string path() const { return folder_ + "/stats"; }
  [[nodiscard]] std::string content() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string folder_;
  std::string error_;
};

TEST_F(StatsFileFixture, AppendsLines) {
  EXPECT_TRUE(append_line(path(), "{\"a\":1}\n", error_)) << error_;
  EXPECT_TRUE(append_line(path(), "{\"a\":2}\n", error_)) << error_;
  EXPECT_EQ(content(), "{\"a\":1}\n{\"a\":2}\n");
}

TEST_F(StatsFileFixture, DoesNotBlockOnAPipeWithoutAReader) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_FALSE(append_line(path(), "x\n", error_));
  EXPECT_FALSE(error_.empty());
}

TEST_F(StatsFileFixture, NeverFollowsALink) {
  const std::string target = folder_ + "/target";
  ASSERT_EQ(symlink(target.c_str(), path().c_str()), 0);
  EXPECT_FALSE(append_line(path(), "x\n", error_));
  EXPECT_EQ(error_, "not a regular file");
  EXPECT_NE(access(target.c_str(), F_OK), 0);
}

TEST_F(StatsFileFixture, ReportsAMissingFolder) {
  EXPECT_FALSE(append_line(folder_ + "/none/stats", "x\n", error_));
  EXPECT_EQ(error_, "No such file or directory");
}

TEST_F(StatsFileFixture, DoesNotGrowBeyondItsLimit) {
  std::ofstream(path()) << "x";
  ASSERT_EQ(truncate(path().c_str(), static_cast<off_t>(kMaxStatsBytes)), 0);  // a sparse file
  EXPECT_FALSE(append_line(path(), "x\n", error_));
  struct stat file {};
  ASSERT_EQ(stat(path().c_str(), &file), 0);
  EXPECT_EQ(static_cast<uint64_t>(file.st_size), kMaxStatsBytes);
}

TEST(StatsPath, ReplacesHostAndProcess) {
  EXPECT_EQ(stats_path("/log/%h-%p.json", "node7", 42), "/log/node7-42.json");
  EXPECT_EQ(stats_path("100%%", "node7", 42), "100%");
  EXPECT_EQ(stats_path("%x %", "node7", 42), "%x %");
}

TEST(StatsLine, EscapesAnyText) {
  StatsLine line("refused");
  line.text("why", "a \"quoted\" \\ line\nand \xff")
      .number("nodes", 3)
      .real("x", 0.0 / 0.0)
      .boolean("on", false);
  const std::string text = line.take();
  EXPECT_NE(
      text.find(R"("kind":"refused","why":"a \"quoted\" \\ line\u000aand \u00ff","nodes":3,"x":0,"on":false})"
                "\n"),
      std::string::npos)
      << text;
  EXPECT_LT(StatsLine("x").text("why", std::string(100'000, 'a')).take().size(), 1500u);
}

}  // namespace
}  // namespace sluice::nccl
