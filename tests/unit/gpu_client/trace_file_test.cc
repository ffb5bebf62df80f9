#include "gpu_client/engine/trace/trace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace sluice::engine::test {
namespace {

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

// The limit falls on each byte of an event in turn.
TEST(TraceFile, ItsEndFitsWhereverTheSpaceEnds) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::filesystem::path path = folder / ("sluice-trace-file-" + std::to_string(::getpid()));
  const std::string event(100, 'e');
  const std::string end(TraceFile::kEndBytes, '.');
  for (rlim_t limit = 1000; limit < 1000 + event.size(); ++limit) {
    auto file = TraceFile::open(path);
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
