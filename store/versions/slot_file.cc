#include "store/versions/slot_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/crc32c.h"

namespace sluice::store {
namespace {

tl::unexpected<Error> system_error(const std::string& action, const std::string& path, int error) {
  return fail(Errc::kSystem, "cannot " + action + " " + path + ": " + std::strerror(error));
}

constexpr mode_t kMode = 0600;

}  // namespace

ShardLock::~ShardLock() {
  ::close(descriptor_);
}

Result<std::shared_ptr<SlotFile>> SlotFile::open(const std::string& path, const ShardShape& shape,
                                                 std::shared_ptr<const ShardLock> lock) {
  std::shared_ptr<SlotFile> slot(new SlotFile(path, shape));
  slot->lock_ = std::move(lock);
  SLUICE_RETURN_IF_ERROR(slot->open_file());
  if (slot->descriptor_ < 0) SLUICE_RETURN_IF_ERROR(slot->create_file());
  if (slot->data_ == nullptr) SLUICE_RETURN_IF_ERROR(slot->map());
  if (slot->lock_ == nullptr) {
    slot->lock_ = std::make_shared<const ShardLock>(slot->descriptor_);
  } else {
    ::close(slot->descriptor_);
  }
  slot->descriptor_ = -1;
  if (auto format = check_format(slot->data_); !format) return add_context(path, format.error());
  return slot;
}

SlotFile::~SlotFile() {
  if (data_ != nullptr) ::munmap(data_, shape_.file_bytes());
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> SlotFile::lock() const {
  if (lock_ != nullptr) return {};
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return system_error("lock", path_, errno);
  return fail(Errc::kSystem,
              path_ + " is in use by another process or a view; end it, or choose another folder");
}

Result<void> SlotFile::map() {
  void* const p = ::mmap(nullptr, shape_.file_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (p == MAP_FAILED) return system_error("map", path_, errno);
  data_ = static_cast<std::byte*>(p);
  return {};
}

Result<void> SlotFile::open_file() {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor_ < 0) return errno == ENOENT ? Result<void>() : system_error("open", path_, errno);
  SLUICE_RETURN_IF_ERROR(lock());
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) return system_error("read", path_, errno);
  if (!S_ISREG(info.st_mode)) return fail(Errc::kMismatch, path_ + " is not a regular file");
  if (static_cast<uint64_t>(info.st_size) == shape_.file_bytes()) return {};
  return fail(Errc::kMismatch, path_ + " has " + std::to_string(info.st_size) + " bytes; expected " +
                                   std::to_string(shape_.file_bytes()));
}

Result<void> SlotFile::create_file() {
  // The final name appears when the file is complete, so a process that ends here leaves nothing half-made.
  const std::string name = path_ + ".new";
  descriptor_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode);
  if (descriptor_ < 0) return system_error("create", name, errno);
  SLUICE_RETURN_IF_ERROR(lock());
  const auto bytes = static_cast<off_t>(shape_.file_bytes());
  const int error = ::ftruncate(descriptor_, 0) != 0 ? errno : ::posix_fallocate(descriptor_, 0, bytes);
  if (error != 0) {
    ::unlink(name.c_str());
    if (error != ENOSPC && error != EFBIG && error != EDQUOT) return system_error("create", name, error);
    return fail(Errc::kMemoryLimit, "cannot reserve " + std::to_string(bytes) + " bytes for " + path_ + ": " +
                                        std::strerror(error));
  }
  SLUICE_RETURN_IF_ERROR(map());
  write_header(data_, shape_, {}, {});
  store_state(data_, SlotState::kFree);
  if (::rename(name.c_str(), path_.c_str()) != 0) return system_error("create", path_, errno);
  return {};
}

Checksums SlotFile::checksums() const noexcept {
  Checksums of_arrays{};
  for (size_t a = 0; a < shape_.arrays; ++a) of_arrays[a] = crc32c(std::as_bytes(array(a)));
  return of_arrays;
}

Result<void> SlotFile::check_content(const VersionFacts& facts) const {
  const Checksums computed = checksums();
  for (size_t a = 0; a < shape_.arrays; ++a) {
    if (computed[a] != facts.checksums[a]) {
      return invalid(path_ + ": the checksum of array " + std::to_string(a) + " of version " +
                     std::to_string(facts.version) + " is " + std::to_string(computed[a]) + "; expected " +
                     std::to_string(facts.checksums[a]));
    }
  }
  return {};
}

}  // namespace sluice::store
