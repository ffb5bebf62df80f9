#include "config/file_contents.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace sluice::config {

FileContents read_file_contents(const std::string& path, size_t max_bytes, FileKind kind) {
  using Status = FileContents::Status;
  const bool regular = kind == FileKind::kRegular;
  // Without O_NONBLOCK, open() of a pipe waits for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0));
  if (fd < 0)
    return {.status = errno == ENOENT || errno == ENOTDIR ? Status::kNotFound : Status::kUnreadable,
            .error = errno};
  struct CloseOnExit {
    int fd;
    ~CloseOnExit() { ::close(fd); }
  } const closer{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0) return {.status = Status::kUnreadable, .error = errno};
  if (regular && !S_ISREG(info.st_mode)) return {.status = Status::kNotRegular};
  FileContents file;
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {.status = Status::kUnreadable, .error = errno};
    if (n == 0) return file;
    file.text.append(buffer.data(), static_cast<size_t>(n));
    if (file.text.size() > max_bytes) {
      file.status = Status::kTooLong;
      return file;
    }
  }
}

}  // namespace sluice::config
