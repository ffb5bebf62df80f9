#include "gpu_client/engine/trace/session_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "config/file_pattern.h"

namespace sluice::engine {
namespace {

tl::unexpected<Error> system_error(int error) {
  return fail(Errc::kSystem, std::strerror(error));
}

}  // namespace

std::string session_file_path(std::string_view pattern, const SessionId& session, Rank rank) {
  const auto expand = [&](std::string_view text) {
    return config::expand_file_pattern(text, {{'r', std::to_string(rank)},
                                              {'s', to_string(session).substr(0, 8)},
                                              {'h', config::host_name()},
                                              {'p', std::to_string(::getpid())}});
  };
  std::string path = expand(pattern);
  // "%%" alone distinguishes no sessions.
  if (path != config::expand_file_pattern(pattern, {})) return path;
  const size_t slash = path.rfind('/');
  const size_t dot = path.rfind('.');
  const size_t name = slash == path.npos ? 0 : slash + 1;
  const bool has_extension = dot != path.npos && dot > name;
  return path.insert(has_extension ? dot : path.size(), expand("-%s-rank%r"));
}

Result<SessionFile> SessionFile::open(const std::string& path, uint64_t max_bytes) {
  // Without O_NONBLOCK, a pipe without a reader would block the job. Not O_TRUNC, because another session may
  // be writing to the file. O_NOFOLLOW, because in a shared folder others could foresee the name.
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0644);
  if (fd < 0 && errno == ELOOP) return fail(Errc::kInvalidArgument, "not a regular file");
  if (fd < 0) return system_error(errno);
  SessionFile file(fd, max_bytes);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error(errno);
  if (!S_ISREG(info.st_mode)) return fail(Errc::kInvalidArgument, "not a regular file");
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error(errno);
    return fail(Errc::kInvalidArgument, "another session writes to this file; add %r, %s or %p to the name");
  }
  if (::ftruncate(fd, 0) != 0) return system_error(errno);
  return file;
}

SessionFile::SessionFile(SessionFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), max_bytes_(other.max_bytes_), size_(other.size_) {}

SessionFile::~SessionFile() {
  if (fd_ < 0) return;
  // Explicitly, because a child of fork() may still have the descriptor, and with it the lock.
  static_cast<void>(::flock(fd_, LOCK_UN));
  ::close(fd_);
}

Result<void> SessionFile::append(std::string_view text) {
  if (size_ + text.size() > max_bytes_)
    return fail(Errc::kSystem, "the file has reached its limit of " + std::to_string(max_bytes_) + " bytes");
  // Readers accept spaces at the end of the file of a killed process.
  const std::string spaces(kEndBytes, ' ');
  Result<void> written = write_at(size_ + text.size(), spaces);
  if (written) written = write_at(size_, text);
  if (!written) {
    // A part of a piece would make the file unreadable. The spaces behind the previous text stay.
    static_cast<void>(::ftruncate(fd_, static_cast<off_t>(size_ == 0 ? 0 : size_ + kEndBytes)));
    return written;
  }
  size_ += text.size();
  return {};
}

Result<void> SessionFile::finish(std::string_view text) {
  Result<void> written = write_at(size_, text);
  if (written) size_ += text.size();
  static_cast<void>(::ftruncate(fd_, static_cast<off_t>(size_)));
  return written;
}

Result<void> SessionFile::write_at(uint64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::pwrite(fd_, text.data(), text.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error(n < 0 ? errno : ENOSPC);
    offset += static_cast<size_t>(n);
    text.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace sluice::engine
