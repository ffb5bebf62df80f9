#include "config/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace sluice::config {
namespace {

namespace fs = std::filesystem;

class OutputFileFixture : public ::testing::Test {
 protected:
  OutputFileFixture() {
    char pattern[] = "/tmp/sluice-output-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  ~OutputFileFixture() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  static std::string error_of(const std::string& path) {
    const auto written = write_output_file(path, "new");
    return written ? "" : written.error().text;
  }
  fs::path folder_;
};

TEST_F(OutputFileFixture, ReplacesAFileAndKeepsItsMode) {
  std::ofstream(path("a")) << "old and longer";
  ASSERT_EQ(::chmod(path("a").c_str(), 0640), 0);
  const int reader = ::open(path("a").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(write_output_file(path("a"), "new"));
  EXPECT_EQ(content(path("a")), "new");
  struct stat info {};
  ASSERT_EQ(::stat(path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0640u);
  std::array<char, 32> old{};
  EXPECT_EQ(::read(reader, old.data(), old.size()), 14);  // replaced, not overwritten
  ::close(reader);
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileFixture, KeepsTheOldContentWithoutFinish) {
  std::ofstream(path("a")) << "old";
  {
    auto file = OutputFile::open(path("a"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(std::as_bytes(std::span("new", 3))));
  }
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileFixture, FollowsLinksAndKeepsThem) {
  fs::create_directory(path("data"));
  std::ofstream(path("data/target")) << "old";
  fs::create_symlink("data/target", path("one"));
  fs::create_symlink(path("one"), path("two"));
  fs::create_symlink("data/missing", path("dangling"));
  for (const auto& [link, target] :
       {std::pair("two", "data/target"), std::pair("dangling", "data/missing")}) {
    ASSERT_TRUE(write_output_file(path(link), link)) << link;
    EXPECT_TRUE(fs::is_symlink(path(link)));
    EXPECT_FALSE(fs::is_symlink(path(target)));
    EXPECT_EQ(content(path(target)), link);
  }
  fs::create_symlink("loop", path("loop"));
  EXPECT_EQ(error_of(path("loop")), "cannot write " + path("loop") + ": Too many levels of symbolic links");
}

TEST_F(OutputFileFixture, WritesThroughDevices) {
  EXPECT_EQ(error_of("/dev/null"), "");
  EXPECT_EQ(error_of("/dev/full"), "cannot write /dev/full: No space left on device");
  fs::create_symlink("/dev/null", path("link"));
  EXPECT_EQ(error_of(path("link")), "");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(OutputFileFixture, WritesThroughAFifoAndWaitsForItsReader) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = content(path("fifo")); });
  EXPECT_EQ(error_of(path("fifo")), "");
  reader.join();
  EXPECT_EQ(read, "new");
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
}

TEST_F(OutputFileFixture, AppendsToADescriptorOfThisProcess) {
  const int fd = ::open(path("out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::write(fd, "line\n", 5), 5);
  EXPECT_EQ(error_of("/dev/fd/" + std::to_string(fd)), "");
  EXPECT_EQ(content(path("out")), "line\nnew");
  ::close(fd);
}

TEST_F(OutputFileFixture, RefusesDirectoriesAndSockets) {
  EXPECT_EQ(error_of(folder_), "cannot write " + folder_.string() + ": Is a directory");
  EXPECT_EQ(error_of(path("none/a")), "cannot write " + path("none/a") + ": No such file or directory");
  EXPECT_EQ(error_of(path("none/")), "cannot write " + path("none/") + ": No such file or directory");
  EXPECT_EQ(files(), 0u);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path("s").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(error_of(path("s")), "cannot write " + path("s") + ": No such device or address");
  ::close(fd);
}

TEST_F(OutputFileFixture, NeverWritesThroughALinkOfTheTemporaryName) {
  std::ofstream(path("precious")) << "old";
  fs::create_symlink("precious", path("a.new"));
  EXPECT_EQ(error_of(path("a")),
            "cannot write " + path("a") + ": " + path("a.new") + " exists and is not a regular file");
  EXPECT_EQ(content(path("precious")), "old");
  EXPECT_TRUE(fs::is_symlink(path("a.new")));
}

TEST_F(OutputFileFixture, TakesTheTemporaryFileOfAKilledProcess) {
  std::ofstream(path("a.new")) << "left behind";
  EXPECT_EQ(error_of(path("a")), "");
  EXPECT_EQ(content(path("a")), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileFixture, NeverWritesIntoAFileThatHasTheTemporaryName) {
  std::ofstream(path("precious")) << "old";
  fs::create_hard_link(path("precious"), path("a.new"));
  EXPECT_EQ(error_of(path("a")), "");
  EXPECT_EQ(content(path("a")), "new");
  EXPECT_EQ(content(path("precious")), "old");
  EXPECT_EQ(fs::hard_link_count(path("precious")), 1u);
}

TEST_F(OutputFileFixture, KeepsOwnerAndGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: only root may give a file away";
  std::ofstream(path("a")) << "old";
  ASSERT_EQ(::chown(path("a").c_str(), 65533, 65534), 0);
  ASSERT_EQ(::chmod(path("a").c_str(), 0660), 0);
  ASSERT_EQ(error_of(path("a")), "");
  struct stat info {};
  ASSERT_EQ(::stat(path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 65533u);
  EXPECT_EQ(info.st_gid, 65534u);
  EXPECT_EQ(info.st_mode & 07777u, 0660u);
}

// A folder that permits no new file.
class FixedFolder : public OutputFileFixture {
 protected:
  FixedFolder() {
    hold_in("/tmp");
    std::ofstream(path("a")) << "old and longer";
    EXPECT_EQ(::chmod(path("a").c_str(), 0666), 0);
    EXPECT_EQ(::chmod(folder_.c_str(), 0555), 0);
    if (::geteuid() == 0) {
      EXPECT_EQ(::seteuid(65534), 0);
    }
  }
  ~FixedFolder() override {
    if (::getuid() == 0) {
      EXPECT_EQ(::seteuid(0), 0);
    }
    EXPECT_EQ(::chmod(folder_.c_str(), 0755), 0);
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
  }
  static void hold_in(const std::string& folder) { ::setenv("TMPDIR", folder.c_str(), 1); }

 private:
  static std::string variable() {
    const char* const value = std::getenv("TMPDIR");
    return value == nullptr ? "" : value;
  }
  const std::string before_ = variable();
};

// A limit of the size of files stands for a full disk.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~SizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    (void)std::signal(SIGXFSZ, handler_);
  }
  SizeLimit(const SizeLimit&) = delete;

 private:
  using Handler = void (*)(int);
  const Handler handler_ = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before_{};
};

TEST_F(FixedFolder, IsWrittenInPlaceAtTheEnd) {
  auto file = OutputFile::open(path("a"));
  ASSERT_TRUE(file) << file.error().text;
  ASSERT_TRUE(file->write(std::as_bytes(std::span("new", 3))));
  EXPECT_EQ(content(path("a")), "old and longer");
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(content(path("a")), "new");
  EXPECT_EQ(error_of(path("a")), "");
  EXPECT_EQ(error_of(path("b")), "cannot write " + path("b") + ": Permission denied");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FixedFolder, KeepsTheOldContentWithoutSpace) {
  auto file = OutputFile::open(path("a"));
  ASSERT_TRUE(file) << file.error().text;
  const std::string text(100'000, 'n');
  ASSERT_TRUE(file->write(std::as_bytes(std::span(text))));
  const auto finished = [&] {
    const SizeLimit limit(50'000);
    return file->finish();
  }();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().text, "cannot write " + path("a") + ": File too large");
  EXPECT_EQ(content(path("a")), "old and longer");
}

TEST_F(FixedFolder, KeepsTheOldSizeWhenNothingCanBeCopied) {
  const int fd = ::dup(STDERR_FILENO);  // the number that the next file gets
  ::close(fd);
  auto file = OutputFile::open(path("a"));
  ASSERT_TRUE(file) << file.error().text;
  const std::string text(100'000, 'n');
  ASSERT_TRUE(file->write(std::as_bytes(std::span(text))));
  // A descriptor that cannot be read stands for a disk that fails.
  const int unreadable = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(unreadable, 0);
  ASSERT_EQ(::dup3(unreadable, fd, O_CLOEXEC), fd);
  ::close(unreadable);
  const auto finished = file->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().text, "cannot write " + path("a") + ": Bad file descriptor");
  EXPECT_EQ(content(path("a")), "old and longer");
}

// Memory would not hold a large snapshot.
TEST_F(FixedFolder, HoldsTheContentInTheTemporaryFolder) {
  {
    const SizeLimit limit(50'000);
    const auto written = write_output_file(path("a"), std::string(100'000, 'n'));
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().text,
              "cannot write " + path("a") +
                  ": File too large in /tmp, which holds the content until it is whole; set TMPDIR to a "
                  "folder with space for it");
  }
  EXPECT_EQ(content(path("a")), "old and longer");
}

TEST_F(FixedFolder, HoldsLittleInMemoryWithoutATemporaryFolder) {
  hold_in(folder_);
  EXPECT_EQ(error_of(path("a")), "");
  EXPECT_EQ(content(path("a")), "new");
  const auto written = write_output_file(path("a"), std::string((size_t{64} << 20) + 1, 'n'));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().text,
            "cannot write " + path("a") +
                ": File too large in memory, which holds the content until it is whole; set TMPDIR to a "
                "folder with space for it");
  EXPECT_EQ(content(path("a")), "new");
}

TEST_F(OutputFileFixture, TwoWritersTakeTurns) {
  std::array<std::thread, 4> writers;
  std::array<bool, 4> written{};
  for (size_t i = 0; i < writers.size(); ++i) {
    writers[i] = std::thread([&, i] {
      written[i] = write_output_file(path("a"), std::string(100'000, static_cast<char>('a' + i))).has_value();
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(written, (std::array<bool, 4>{true, true, true, true}));
  const std::string text = content(path("a"));
  EXPECT_EQ(text, std::string(100'000, text.empty() ? '?' : text[0]));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace sluice::config
