// Class SlotFile owns one slot: a file of fixed size for one version at a time, and its mapping. The mapping
// is shared, so that its content is still there after kill -9 of the process, without a write on the path.
//
// A file is created with all its blocks, so a full disk is an error of open(), never of a store into the
// mapping, which would be a SIGBUS. Only the first slot of a shard keeps a descriptor, whose lock is that of
// all: a small model may have many slots, and descriptors are few.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "store/versions/slot_header.h"

namespace sluice::store {

// Keeps a second process, or a second object of this one, from opening the slots of a shard as long as the
// shard or a view of it is there.
class ShardLock {
 public:
  explicit ShardLock(int locked_descriptor) noexcept : descriptor_(locked_descriptor) {}
  ShardLock(const ShardLock&) = delete;
  ShardLock& operator=(const ShardLock&) = delete;
  ~ShardLock();

 private:
  const int descriptor_;
};

class SlotFile {
 public:
  // Opens the file, or creates it with state kFree. Its folder exists. `lock`: that of the first slot, which
  // is opened without one. Errors name the file: kSystem, kMemoryLimit (no room, with the bytes), kMismatch
  // (another size, or no file of a version).
  [[nodiscard]] static Result<std::shared_ptr<SlotFile>> open(
      const std::string& path, const ShardShape& shape, std::shared_ptr<const ShardLock> lock = nullptr);

  SlotFile(const SlotFile&) = delete;
  SlotFile& operator=(const SlotFile&) = delete;
  ~SlotFile();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::shared_ptr<const ShardLock>& shard_lock() const noexcept { return lock_; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::span<float> array(size_t index) const noexcept {
    return {reinterpret_cast<float*>(data_ + shape_.content_at() + index * shape_.array_bytes()),
            shape_.elements};
  }
  [[nodiscard]] Checksums checksums() const noexcept;  // reads all arrays
  // Computes the checksums of all arrays and compares them; the error names the file and the array.
  [[nodiscard]] Result<void> check_content(const VersionFacts& facts) const;

  // Views of the slot. The last one may end on any thread, and the owner overwrites the slot only at 0.
  std::atomic<uint32_t> readers{0};

 private:
  SlotFile(std::string path, const ShardShape& shape) : path_(std::move(path)), shape_(shape) {}
  // The next two set descriptor_.
  [[nodiscard]] Result<void> open_file();
  [[nodiscard]] Result<void> create_file();
  // Of the first slot.
  [[nodiscard]] Result<void> lock() const;
  [[nodiscard]] Result<void> map();

  std::string path_;
  ShardShape shape_;
  std::shared_ptr<const ShardLock> lock_;
  int descriptor_ = -1;  // of open()
  std::byte* data_ = nullptr;
};

}  // namespace sluice::store
