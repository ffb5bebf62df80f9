#include "config/file_contents.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace sluice::config {
namespace {

constexpr int kWriterTimeoutMs = 5000;

// Waits until read() has something to say. False: the time is over.
bool is_readable_within(int fd, int timeout_ms) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  int ready = 0;
  do ready = ::poll(&wanted, 1, timeout_ms);
  while (ready < 0 && errno == EINTR);
  return ready != 0;
}

}  // namespace

FileContents read_file_contents(const std::string& path, size_t max_bytes, FileKind kind) {
  using Status = FileContents::Status;
  const bool regular = kind == FileKind::kRegular;
  // Without O_NONBLOCK, open() of a pipe waits for a writer without end.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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
  bool has_waited = false;
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // a pipe has a writer, which may be slow
      (void)is_readable_within(fd, -1);
      has_waited = true;
      continue;
    }
    if (n < 0) return {.status = Status::kUnreadable, .error = errno};
    // A pipe without a writer, which may still come.
    if (n == 0 && S_ISFIFO(info.st_mode) && file.text.empty() && !has_waited) {
      has_waited = true;
      if (!is_readable_within(fd, kWriterTimeoutMs)) return {.status = Status::kUnreadable, .error = EPIPE};
      continue;
    }
    if (n == 0) return file;
    file.text.append(buffer.data(), static_cast<size_t>(n));
    if (file.text.size() > max_bytes) {
      file.status = Status::kTooLong;
      return file;
    }
  }
}

Result<std::string> text_or_error(FileContents file, const std::string& path, size_t max_bytes,
                                  std::string_view noun, std::string_view kind) {
  switch (file.status) {
    case FileContents::Status::kOk: return std::move(file.text);
    case FileContents::Status::kNotRegular: return invalid(path + ": not a regular file");
    case FileContents::Status::kTooLong:
      return invalid(path + ": " + std::string(noun) + " is longer than " + std::to_string(max_bytes) +
                     " bytes");
    case FileContents::Status::kNotFound:
    case FileContents::Status::kUnreadable: break;
  }
  const std::string shown = kind.empty() ? path : std::string(kind) + " " + path;
  return fail(Errc::kSystem, read_failure(shown, path, file.error));
}

Result<std::string> read_text_file(const std::string& path, size_t max_bytes, FileKind kind,
                                   std::string_view noun, std::string_view shown_kind) {
  return text_or_error(read_file_contents(path, max_bytes, kind), path, max_bytes, noun, shown_kind);
}

std::string read_failure(const std::string& shown, const std::string& path, int error) {
  std::string text = "cannot read " + shown + ": " +
                     (error == EPIPE ? "no process writes to this pipe" : std::strerror(error));
  struct stat info {};
  // Typical of a container's user, and of a unit with DynamicUser=.
  if (error != EACCES || ::stat(path.c_str(), &info) != 0) return text;
  std::array<char, 200> detail{};
  std::snprintf(detail.data(), detail.size(),
                "; its owner is user %u and its mode %04o, but this process is user %u: run it as the owner, "
                "chown the file, or in systemd use LoadCredential=",
                info.st_uid, info.st_mode & 07777, ::geteuid());
  return text + detail.data();
}

}  // namespace sluice::config
