#include "config/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
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
constexpr size_t kMaxMemory = 64 * kMiB;  // a snapshot may be larger than the host's memory

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

std::string follow_links(const std::string& path) {
  std::filesystem::path file = path;
  std::error_code error;
  for (int i = 0; i < kMaxLinks; ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(file, error);
    if (error) break;
    file = file.parent_path() / next;
  }
  return file;
}

Result<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile file(path, follow_links(path));
  SLUICE_RETURN_IF_ERROR(file.open_target());
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      temporary_(std::exchange(other.temporary_, {})),
      holder_(std::move(other.holder_)),
      room_(other.room_),
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
  if (exists && !S_ISREG(info.st_mode)) return open_stream();
  target_ = Target::kFile;
  const mode_t mode = exists ? info.st_mode & 07777 : 0666;
  if (const int number = open_temporary(mode); number != 0) {
    if (exists && forbids_replacement(number) &&
        ::faccessat(AT_FDCWD, file_.c_str(), W_OK, AT_EACCESS) == 0) {
      if (fd_ >= 0) ::close(fd_);
      return open_unnamed();
    }
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

Result<void> OutputFile::open_unnamed() {
  std::error_code unknown;
  holder_ = std::filesystem::temp_directory_path(unknown);
  std::string name = holder_ + "/sluice-output-XXXXXX";
  fd_ = unknown ? -1 : ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ >= 0) {
    ::unlink(name.c_str());
    return {};
  }
  holder_ = "memory";
  room_ = kMaxMemory;
  fd_ = ::memfd_create("sluice-output", MFD_CLOEXEC);
  return fd_ < 0 ? error(errno) : Result<void>();
}

int OutputFile::open_temporary(unsigned mode) {
  const std::string name = file_ + ".new";
  struct stat opened {};
  struct stat named {};
  for (const Nanos deadline = monotonic_now() + kTimeout; monotonic_now() < deadline;
       ::poll(nullptr, 0, kPollMillis)) {
    // A new file each time: one that exists may be a hard link to a file that nobody meant.
    fd_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    const bool is_new = fd_ >= 0;
    if (!is_new && errno == EEXIST) {
      fd_ = ::open(name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
      if (fd_ < 0 && errno == ENOENT) continue;
    }
    if (fd_ < 0) return errno == EISDIR || errno == ENXIO ? ELOOP : errno;
    if (::fstat(fd_, &opened) != 0) return errno;
    if (!S_ISREG(opened.st_mode)) return ELOOP;
    // The lock keeps two writers apart. A killed process leaves its file without one.
    const bool locked = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    // Another writer may have renamed or deleted the file meanwhile.
    const bool is_named = ::lstat(name.c_str(), &named) == 0 && named.st_ino == opened.st_ino;
    if (locked && is_named && is_new) {
      temporary_ = name;
      return 0;
    }
    if (locked && is_named && ::unlink(name.c_str()) != 0) return errno;
    ::close(std::exchange(fd_, -1));
  }
  return EWOULDBLOCK;
}

Result<void> OutputFile::open_stream() {
  const Nanos deadline = monotonic_now() + kTimeout;
  // Without O_NONBLOCK, open() of a FIFO waits for its reader without a limit.
  while ((fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) < 0) {
    if (errno == ENXIO && monotonic_now() >= deadline) return error("no process reads it");
    if (errno != ENXIO && errno != EINTR) return error(errno);
    ::poll(nullptr, 0, kPollMillis);
  }
  static_cast<void>(::fcntl(fd_, F_SETFL, 0));
  return {};
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  if (bytes.size() > room_) return write_error(EFBIG);
  room_ -= bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return write_error(n < 0 ? errno : ENOSPC);
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
  if (!is_seekable()) return {};
  if (temporary_.empty()) return copy_in_place();
  if (::rename(temporary_.c_str(), file_.c_str()) != 0)
    return forbids_replacement(errno) ? copy_in_place() : error(errno);  // a mount point
  temporary_.clear();
  const std::string folder = std::filesystem::path(file_).parent_path();
  const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Without the right to read the folder, the file is still complete.
  if (directory < 0) return {};
  const int number = ::fsync(directory) == 0 || errno == EINVAL ? 0 : errno;
  ::close(directory);
  return number == 0 ? Result<void>() : error(number);
}

Result<void> OutputFile::copy_in_place() {
  const int to = ::open(file_.c_str(), O_WRONLY | O_CLOEXEC);
  struct stat news {};
  struct stat old {};
  if (to < 0) return error(errno);
  int number = ::fstat(fd_, &news) != 0 || ::fstat(to, &old) != 0 ? errno : 0;
  const bool is_known = number == 0;
  // Before the first byte, because a full disk must not cost the old content.
  if (is_known && news.st_size > 0 && ::fallocate(to, 0, 0, news.st_size) != 0 && errno != EOPNOTSUPP)
    number = errno;
  off_t copied = 0;
  while (number == 0 && copied < news.st_size) {
    const ssize_t n = ::sendfile(to, fd_, &copied, static_cast<size_t>(news.st_size - copied));
    if (n <= 0 && errno != EINTR) number = n < 0 ? errno : EIO;
  }
  // The old content is whole, but zeros may follow it.
  if (is_known && number != 0 && copied == 0) static_cast<void>(::ftruncate(to, old.st_size));
  if (number == 0 && (::ftruncate(to, news.st_size) != 0 || ::fsync(to) != 0)) number = errno;
  ::close(to);
  if (number == 0) return {};
  if (copied == 0) return error(number);
  const std::string kept = std::exchange(temporary_, {});
  return error(std::strerror(number) + std::string("; its content is damaged") +
               (kept.empty() ? "" : ", the new content is in " + kept));
}

tl::unexpected<Error> OutputFile::error(const std::string& reason) const {
  return fail(Errc::kSystem, "cannot write " + path_ + ": " + reason);
}

tl::unexpected<Error> OutputFile::write_error(int number) const {
  if (holder_.empty()) return error(number);
  return error(std::strerror(number) + (" in " + holder_) +
               ", which holds the content until it is whole; set TMPDIR to a folder with space for it");
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
