#include "config/discovery/surroundings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

namespace sluice::config::discovery {
namespace {

TEST(ProcessSurroundings, KeepVariablesAsTheyWere) {
  std::string entry = "SLUICE_REDUCERS=a:1";
  std::array<const char*, 4> environment{"SLUICE_EMPTY=", entry.c_str(), "SLUICE_REDUCERS=b:2", nullptr};
  const Surroundings here = process_surroundings(environment.data());
  environment.fill(nullptr);  // as when the process sets one more, and the array moves
  entry.assign(entry.size(), 'x');
  EXPECT_EQ(here.variable("SLUICE_REDUCERS"), "a:1");
  EXPECT_EQ(here.variable("SLUICE_EMPTY"), std::nullopt);
  EXPECT_EQ(here.variable("SLUICE"), std::nullopt);
}

TEST(ProcessSurroundings, WaitForNobodyToWriteAFile) {
  const std::string folder = std::filesystem::temp_directory_path() / ("sluice-" + std::to_string(getpid()));
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::array<const char*, 1> nothing{nullptr};
  const Surroundings here = process_surroundings(nothing.data());
  const auto read = here.read_file(pipe);
  const auto missing = here.read_file(folder + "/missing");
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().text, pipe + ": no regular file");
  ASSERT_TRUE(missing);
  EXPECT_EQ(*missing, std::nullopt);
}

}  // namespace
}  // namespace sluice::config::discovery
