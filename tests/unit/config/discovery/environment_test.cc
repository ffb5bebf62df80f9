#include "config/discovery/environment.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

namespace sluice::config::discovery {
namespace {

TEST(ProcessEnvironment, CopiesTheVariables) {
  std::string entry = "SLUICE_REDUCERS=a:1";
  std::array<const char*, 4> environment{"SLUICE_EMPTY=", entry.c_str(), "SLUICE_REDUCERS=b:2", nullptr};
  const Environment env = process_environment(environment.data());
  environment.fill(nullptr);  // as when the process sets another variable and the array moves
  entry.assign(entry.size(), 'x');
  EXPECT_EQ(env.variable("SLUICE_REDUCERS"), "a:1");
  EXPECT_EQ(env.variable("SLUICE_EMPTY"), std::nullopt);
  EXPECT_EQ(env.variable("SLUICE"), std::nullopt);
}

TEST(ProcessEnvironment, RejectsAPipeWithoutBlocking) {
  const std::string folder = std::filesystem::temp_directory_path() / ("sluice-" + std::to_string(getpid()));
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::array<const char*, 1> no_variables{nullptr};
  const Environment env = process_environment(no_variables.data());
  const auto read = env.read_file(pipe);
  const auto missing = env.read_file(folder + "/missing");
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().text, pipe + ": not a regular file");
  ASSERT_TRUE(missing);
  EXPECT_EQ(*missing, std::nullopt);
}

}  // namespace
}  // namespace sluice::config::discovery
