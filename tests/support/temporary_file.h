// Class TemporaryFile creates a file with the given content and deletes it in the destructor. The file's name
// is unique, because tests of other users and other builds may run on the same machine.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace sluice::test {

class TemporaryFile {
 public:
  // Throws std::system_error, which fails the test.
  explicit TemporaryFile(std::string_view content, mode_t mode = 0600) {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/sluice-test-XXXXXX";
    const int fd = ::mkstemp(path_.data());
    if (fd < 0) throw std::system_error(errno, std::generic_category(), path_);
    const bool written =
        ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()) &&
        ::fchmod(fd, mode) == 0;
    const int error = errno;
    ::close(fd);
    if (!written) {
      static_cast<void>(std::remove(path_.c_str()));
      throw std::system_error(error, std::generic_category(), path_);
    }
  }
  ~TemporaryFile() { static_cast<void>(std::remove(path_.c_str())); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace sluice::test
