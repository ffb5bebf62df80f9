#include "gpu_client/engine/trace/session_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "config/file_pattern.h"
#include "core/units.h"

namespace sluice::engine::test {
namespace {

constexpr SessionId kFileSession{{0x3f, 0x2a, 0x0b, 0x1c}};

TEST(SessionFilePath, DistinguishesSessionsAndRanks) {
  EXPECT_EQ(session_file_path("/tmp/trace.json", kFileSession, 3), "/tmp/trace-3f2a0b1c-rank3.json");
  EXPECT_EQ(session_file_path("trace", kFileSession, 3), "trace-3f2a0b1c-rank3");
  EXPECT_EQ(session_file_path("/tmp/v1.2/trace", kFileSession, 3), "/tmp/v1.2/trace-3f2a0b1c-rank3");
  EXPECT_EQ(session_file_path("/tmp/.trace", kFileSession, 3), "/tmp/.trace-3f2a0b1c-rank3");
  EXPECT_EQ(session_file_path("100%%.json", kFileSession, 3), "100%-3f2a0b1c-rank3.json");
}

TEST(SessionFilePath, ReplacesWhatThePatternNames) {
  EXPECT_EQ(session_file_path("%r-%s-%x.json", kFileSession, 3), "3-3f2a0b1c-%x.json");
  EXPECT_EQ(session_file_path("%h-%p", kFileSession, 3),
            config::host_name() + "-" + std::to_string(getpid()));
}

// Limits the size of the files that this process writes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  // Ignored, so that a write beyond the limit is the error EFBIG and not the end of the process.
  void (*handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

TEST(SessionFile, NeverFollowsALink) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::filesystem::path link = folder / ("sluice-session-link-" + std::to_string(::getpid()));
  const std::filesystem::path target = link.string() + "-target";
  std::filesystem::create_symlink(target, link);
  const auto file = SessionFile::open(link, kMiB);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().text, "not a regular file");
  EXPECT_FALSE(std::filesystem::exists(target));
  std::filesystem::remove(link);
}

// The limit falls on each byte of an event in turn.
TEST(SessionFile, ItsEndFitsWhereverTheSpaceEnds) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::filesystem::path path = folder / ("sluice-session-file-" + std::to_string(::getpid()));
  const std::string event(100, 'e');
  const std::string end(SessionFile::kEndBytes, '.');
  for (rlim_t limit = 1000; limit < 1000 + event.size(); ++limit) {
    auto file = SessionFile::open(path, kMiB);
    ASSERT_TRUE(file);
    std::string expected;
    {
      const FileSizeLimit limited(limit);
      while (file->append(event)) expected += event;
      EXPECT_TRUE(file->finish(end)) << "limit " << limit;
    }
    std::ifstream written(path);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(written), {}), expected + end) << "limit " << limit;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sluice::engine::test
