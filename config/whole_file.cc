#include "config/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace sluice::config {

WholeFile read_whole_file(const std::string& path, size_t most, FileKind kind) {
  using End = WholeFile::End;
  const bool regular = kind == FileKind::kRegular;
  // A pipe without a writer would be waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0));
  if (fd < 0)
    return {.end = errno == ENOENT || errno == ENOTDIR ? End::kMissing : End::kUnreadable, .error = errno};
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } const close{fd};
  struct stat about {};
  if (::fstat(fd, &about) != 0) return {.end = End::kUnreadable, .error = errno};
  if (regular && !S_ISREG(about.st_mode)) return {.end = End::kNoFile};
  WholeFile file;
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {.end = End::kUnreadable, .error = errno};
    if (n == 0) return file;
    file.text.append(piece.data(), static_cast<size_t>(n));
    if (file.text.size() > most) {
      file.end = End::kTooLong;
      return file;
    }
  }
}

}  // namespace sluice::config
