#include "blackbox/dump_thread.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "blackbox/process_dump.h"

namespace sluice::blackbox::test {
namespace {

class DumpThreadTest : public testing::Test {
 protected:
  DumpThreadTest() { set_dump_path(pattern_); }
  ~DumpThreadTest() override {
    set_dump_path("");
    std::filesystem::remove(path_);
  }
  // The line that says why the file was written; empty without a file.
  [[nodiscard]] std::string header() const {
    std::ifstream file(path_);
    std::string line;
    std::getline(file, line);
    return line;
  }

  const std::string pattern_ = std::filesystem::temp_directory_path() / "sluice-dump-thread-%p";
  const std::string path_ = dump_path(pattern_, "", ::getpid());
};

TEST_F(DumpThreadTest, ItsDestructorWaitsForTheFile) {
  { DumpThread().request("one"); }
  EXPECT_NE(header().find("\"why\":\"one\""), std::string::npos) << header();
}

// Requests of a storm of failures share a write, and the last one is not forgotten.
TEST_F(DumpThreadTest, WritesTheLastOfManyRequests) {
  {
    DumpThread thread;
    for (int i = 0; i < 1000; ++i) thread.request("many");
    thread.request("the last");
  }
  EXPECT_NE(header().find("\"why\":\"the last\""), std::string::npos) << header();
}

TEST_F(DumpThreadTest, WithoutAPathARequestWritesNothing) {
  set_dump_path("");
  { DumpThread().request("nothing"); }
  EXPECT_EQ(header(), "");
}

}  // namespace
}  // namespace sluice::blackbox::test
