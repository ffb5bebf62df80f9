#include "config/host/writable_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "config/output_file.h"

namespace sluice::config {
namespace {

namespace fs = std::filesystem;

// As a user without the rights of root.
class WritablePathTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "pathsXXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* const sub : {"free", "fixed"}) {
      fs::create_directory(folder_ / sub);
      std::ofstream(folder_ / sub / "writable") << "old";
      std::ofstream(folder_ / sub / "stale") << "old";
      ASSERT_EQ(::chmod((folder_ / sub / "writable").c_str(), 0666), 0);
      ASSERT_EQ(::chmod((folder_ / sub / "stale").c_str(), 0444), 0);
    }
    ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
    ASSERT_EQ(::chmod((folder_ / "free").c_str(), 0777), 0);
    const std::map<const char*, const char*> links = {{"to-free", "free/new"},
                                                      {"to-fixed", "fixed/new"},
                                                      {"to-stale", "free/stale"},
                                                      {"to-none", "none/new"},
                                                      {"to-null", "/dev/null"}};
    for (const auto& [link, target] : links) fs::create_symlink(target, folder_ / link);
    ASSERT_EQ(::chmod((folder_ / "fixed").c_str(), 0555), 0);
    if (::geteuid() == 0) {
      ASSERT_EQ(::seteuid(65534), 0);
    }
  }
  void TearDown() override {
    if (::getuid() == 0) {
      ASSERT_EQ(::seteuid(0), 0);
    }
    fs::permissions(folder_ / "fixed", fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  fs::path folder_;
};

TEST_F(WritablePathTest, OutputFilesAreJudgedAsTheyAreWritten) {
  const std::map<const char*, bool> cases = {
      {"free/new", true},     {"free/stale", true},     {"free/writable", true}, {"fixed/new", false},
      {"fixed/stale", false}, {"fixed/writable", true}, {"to-free", true},       {"to-fixed", false},
      {"to-stale", true},     {"to-none", false},       {"to-null", true},       {"free", false},
      {"free/stale/a", false}};
  for (const auto& [name, is_writable] : cases) {
    EXPECT_EQ(check_output_file(folder_ / name).has_value(), is_writable) << name;
    EXPECT_EQ(write_output_file(folder_ / name, "new").has_value(), is_writable) << name;
  }
}

TEST_F(WritablePathTest, DerivedNamesReplaceRegularFilesOnly) {
  const std::map<const char*, bool> cases = {
      {"free/new", true}, {"free/stale", true}, {"fixed/new", false}, {"fixed/writable", false},
      {"to-free", false}, {"to-stale", false},  {"free", false}};
  for (const auto& [name, is_replaceable] : cases)
    EXPECT_EQ(check_replaceable_file(folder_ / name).has_value(), is_replaceable) << name;
  EXPECT_EQ(check_replaceable_file("/dev/null").error().text,
            "cannot write to /dev/null: not a regular file");
  EXPECT_EQ(check_output_file(folder_ / "fixed/new").error().text,
            "cannot write to " + (folder_ / "fixed").string() + ": Permission denied");
}

}  // namespace
}  // namespace sluice::config
