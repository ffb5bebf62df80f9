#include "config/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/parse_number.h"
#include "core/units.h"

namespace sluice::config {
namespace {

constexpr int kMaxLinks = 40;  // as in the kernel
constexpr Nanos kTimeout = 30 * kSecond;
constexpr int kPollMillis = 10;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Returns the name behind all links, which need not exist. With too many links, returns the last one.
std::string follow_links(std::string path) {
  std::array<char, PATH_MAX> target;
  for (int i = 0; i < kMaxLinks; ++i) {
    const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
    if (n <= 0) return path;
    const std::string next(target.data(), static_cast<size_t>(n));
    path = next.front() == '/' ? next : folder_of(path) + next;
  }
  return path;
}

// Returns the descriptor that a name such as /dev/stdout stands for. Opening the name would write a
// redirected output from its beginning again.
std::optional<int> descriptor_of(std::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (path.starts_with(folder)) return parse_number<int>(path.substr(folder.size()));
  }
  return std::nullopt;
}

// The errors of a file that exists but whose name cannot be replaced.
bool forbids_replacement(int error) {
  return error == EBUSY || error == EROFS || error == EACCES || error == EPERM || error == EXDEV;
}

}  // namespace

Result<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile file(path, follow_links(path));
  SLUICE_RETURN_IF_ERROR(file.open_target());
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      temporary_(std::exchange(other.temporary_, {})),
      target_(other.target_),
      fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

Result<void> OutputFile::open_target() {
  if (const auto descriptor = descriptor_of(path_)) {
    fd_ = ::fcntl(*descriptor, F_DUPFD_CLOEXEC, 0);
    return fd_ < 0 ? error(errno) : Result<void>();
  }
  struct stat info {};
  const bool exists = ::stat(path_.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) return error(errno);
  if (exists && S_ISDIR(info.st_mode)) return error(EISDIR);
  if (exists && S_ISSOCK(info.st_mode)) return error(ENXIO);
  if (exists && !S_ISREG(info.st_mode)) return open_existing(O_NOCTTY, Target::kStream);
  const mode_t mode = exists ? info.st_mode & 07777 : 0666;
  if (const int number = open_temporary(mode); number != 0) {
    if (exists && forbids_replacement(number)) return open_existing(O_TRUNC, Target::kInPlace);
    if (number == EWOULDBLOCK) return error("another process writes " + file_ + ".new");
    if (number == ELOOP) return error(file_ + ".new exists and is not a regular file");
    return error(number);
  }
  if (!exists) return {};
  // The owner first, because a change of the owner clears special bits.
  mode_t kept = mode;
  if (::fchown(fd_, info.st_uid, info.st_gid) != 0) {
    // The file gets another owner, so no set-id bits; and without its group, nothing for a group.
    kept &= 01777;
    if (::fchown(fd_, static_cast<uid_t>(-1), info.st_gid) != 0) kept &= ~mode_t{0070};
  }
  static_cast<void>(::fchmod(fd_, kept));
  return {};
}

int OutputFile::open_temporary(unsigned mode) {
  const std::string name = file_ + ".new";
  struct stat opened {};
  struct stat named {};
  for (const Nanos deadline = monotonic_now() + kTimeout;; ::poll(nullptr, 0, kPollMillis)) {
    // Not O_EXCL, because a killed process leaves its file. The lock keeps two writers apart.
    fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd_ < 0) return errno == EISDIR || errno == ENXIO ? ELOOP : errno;
    if (::fstat(fd_, &opened) != 0) return errno;
    if (!S_ISREG(opened.st_mode)) return ELOOP;
    const bool locked = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    // Another writer may have renamed or deleted the file meanwhile.
    if (locked && ::lstat(name.c_str(), &named) == 0 && named.st_ino == opened.st_ino) break;
    ::close(std::exchange(fd_, -1));
    if (monotonic_now() >= deadline) return EWOULDBLOCK;
  }
  temporary_ = name;
  target_ = Target::kReplaced;
  return ::ftruncate(fd_, 0) == 0 ? 0 : errno;
}

Result<void> OutputFile::open_existing(int flags, Target target) {
  const Nanos deadline = monotonic_now() + kTimeout;
  // Without O_NONBLOCK, open() of a FIFO waits for its reader without a limit.
  while ((fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags)) < 0) {
    if (errno == ENXIO && monotonic_now() >= deadline) return error("no process reads it");
    if (errno != ENXIO && errno != EINTR) return error(errno);
    ::poll(nullptr, 0, kPollMillis);
  }
  static_cast<void>(::fcntl(fd_, F_SETFL, 0));
  target_ = target;
  return {};
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return error(n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<void> OutputFile::overwrite(size_t position, std::string_view text) {
  const ssize_t n = ::pwrite(fd_, text.data(), text.size(), static_cast<off_t>(position));
  if (n == static_cast<ssize_t>(text.size())) return {};
  return error(n < 0 ? errno : ENOSPC);
}

Result<void> OutputFile::finish() {
  // A device or a FIFO has no disk.
  if (::fsync(fd_) != 0 && is_seekable()) return error(errno);
  if (target_ == Target::kReplaced) {
    if (::rename(temporary_.c_str(), file_.c_str()) != 0) {
      if (!forbids_replacement(errno)) return error(errno);
      std::error_code copied;  // into a mount point
      std::filesystem::copy_file(temporary_, file_, std::filesystem::copy_options::overwrite_existing,
                                 copied);
      return copied ? error(copied.value()) : Result<void>();
    }
    temporary_.clear();
    const std::string folder = folder_of(file_);
    const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Without the right to read the folder, the file is still complete.
    if (directory < 0) return {};
    const int number = ::fsync(directory) == 0 || errno == EINVAL ? 0 : errno;
    ::close(directory);
    if (number != 0) return error(number);
  }
  return {};
}

tl::unexpected<Error> OutputFile::error(const std::string& reason) const {
  return fail(Errc::kSystem, "cannot write " + path_ + ": " + reason);
}

tl::unexpected<Error> OutputFile::error(int number) const {
  return error(std::string(std::strerror(number)));
}

Result<void> write_output_file(const std::string& path, std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(file, OutputFile::open(path));
  SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
  return file.finish();
}

}  // namespace sluice::config
