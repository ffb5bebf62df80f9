#include "config/settings_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = Setting::Kind;

std::vector<Setting> parsed(std::string_view text) {
  auto settings = parse_settings(text, "a.toml");
  EXPECT_TRUE(settings.has_value()) << settings.error().text;
  return settings ? *settings : std::vector<Setting>();
}

std::string error_of(std::string_view text) {
  const auto settings = parse_settings(text, "a.toml");
  return settings ? "" : settings.error().text;
}

TEST(SettingsFile, ReturnsValuesAsVariablesWouldHoldThem) {
  const auto s = parsed("name = 'a \"b\"'\nlanes = 0x10\nratio = 1.5\nquiet = true\nday = 2026-11-20\n");
  ASSERT_EQ(s.size(), 5u);
  const std::vector<std::pair<Kind, std::string>> expected = {{Kind::kText, "a \"b\""},
                                                              {Kind::kInteger, "16"},
                                                              {Kind::kFraction, "1.5"},
                                                              {Kind::kFlag, "true"},
                                                              {Kind::kDate, ""}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(s[i].kind, expected[i].first) << i;
    EXPECT_EQ(s[i].text, expected[i].second) << i;
  }
}

TEST(SettingsFile, KeepsFileOrderAndPositions) {
  const auto s = parsed("# first\nzebra = 1\n  ant = \"x\"\n[table]\nkey   =  7\n");
  ASSERT_EQ(s.size(), 3u);
  EXPECT_EQ(s[0].key, "zebra");
  EXPECT_EQ(position_text("f", s[0].key_position), "f:2:1");
  EXPECT_EQ(position_text("f", s[0].value_position), "f:2:9");
  EXPECT_EQ(s[1].key, "ant");
  EXPECT_EQ(position_text("f", s[1].key_position), "f:3:3");
  ASSERT_EQ(s[2].kind, Kind::kTable);
  EXPECT_EQ(position_text("f", s[2].key_position), "f:4:2");
  ASSERT_EQ(s[2].items.size(), 1u);
  EXPECT_EQ(position_text("f", s[2].items[0].value_position), "f:5:10");
}

TEST(SettingsFile, CountsColumnsInCharacters) {
  const auto s = parsed("a = { \"\xc3\xa9\xc3\xa9\" = 1 , b = 2 }\n");
  EXPECT_EQ(position_text("f", s.at(0).items.at(1).value_position), "f:1:22");
}

TEST(SettingsFile, ReturnsTheItemsOfListsAndTables) {
  const auto s = parsed("list = [\"a\", 2]\nweight = { acme = 3, \"odd = name\" = 1 }\n");
  ASSERT_EQ(s.size(), 2u);
  EXPECT_EQ(s[0].kind, Kind::kList);
  ASSERT_EQ(s[0].items.size(), 2u);
  EXPECT_EQ(s[0].items[1].text, "2");
  EXPECT_EQ(position_text("f", s[0].items[1].value_position), "f:1:14");
  ASSERT_EQ(s[1].items.size(), 2u);
  EXPECT_EQ(s[1].items[1].key, "odd = name");
}

TEST(SettingsFile, SyntaxErrorsNameThePosition) {
  EXPECT_THAT(error_of("a = 1\nb = = 2\n"), StartsWith("a.toml:2:5: "));
  EXPECT_THAT(error_of("a = 1\n[t\nb = 1\n"), StartsWith("a.toml:2:3: "));
  EXPECT_THAT(error_of("a = \"no end\n"), StartsWith("a.toml:1:"));
  EXPECT_THAT(error_of("a = 1\na = 2\n"), StartsWith("a.toml:2:"));
  EXPECT_THAT(error_of("a = \"\xff\"\n"), StartsWith("a.toml:1:"));
  EXPECT_EQ(error_of(std::string_view("a = \x01\n", 6)).find('\x01'), std::string::npos);
  EXPECT_NE(error_of(std::string(100'000, '[')), "") << "depth is bounded";
}

TEST(SettingsFile, AnEmptyFileHasNoSettings) {
  EXPECT_TRUE(parsed("").empty());
  EXPECT_TRUE(parsed("# a comment").empty());
}

class SettingsFileFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path_template = std::filesystem::temp_directory_path() / "sluice-settings-XXXXXX";
    ASSERT_NE(mkdtemp(path_template.data()), nullptr);
    folder_ = path_template;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(SettingsFileFixture, ReadErrorsNameTheFile) {
  const std::string path = folder_ / "a.toml";
  EXPECT_THAT(read_settings(path).error().text, StartsWith("cannot read " + path + ": "));
  std::ofstream(path) << "a = 1\n";
  EXPECT_EQ(read_settings(path)->size(), 1u);
  std::ofstream(path) << std::string(kMaxSettingsFile + 1, '\n');
  EXPECT_THAT(read_settings(path).error().text, HasSubstr("longer than"));
  EXPECT_THAT(read_settings(folder_).error().text, HasSubstr("not a regular file"));
}

TEST_F(SettingsFileFixture, APipeIsRejectedWithoutBlocking) {
  const std::string path = folder_ / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(read_settings(path).error().text, HasSubstr("not a regular file"));
}

TEST_F(SettingsFileFixture, NamesTheUserWhoMayNotReadIt) {
  const std::string path = folder_ / "a.toml";
  std::ofstream(path) << "lanes = 1\n";
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0000), 0);
  const auto read_as_other = [&] {
    if (::geteuid() == 0 && ::setuid(65532) != 0) ::_exit(2);
    const auto settings = read_settings(path);
    std::fputs(settings ? "it was read" : settings.error().text.c_str(), stderr);
    ::_exit(0);
  };
  EXPECT_EXIT(read_as_other(), ::testing::ExitedWithCode(0),
              "Permission denied; its owner is user [0-9]+ and its mode 0000, but this process is user ");
}

}  // namespace
}  // namespace sluice::config
