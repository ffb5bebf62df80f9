// Class VersionFiles keeps the last versions of one shard of a model in files of a folder.
//
//   begin(v + 1) -> prepare -> commit(v + 1), or discard(v + 1)
//
// There are kept + 1 slots (slot_file.h): the kept committed versions, and the one in work. A committed
// version that is no longer kept leaves its slot to the next begin(), which waits for the slot's readers.
// After kill -9 at any instruction, open() finds exactly the versions that were prepared or committed; one in
// work is gone. A power failure may leave a prepared version torn; its checksum says so.
//
// One thread calls all functions. A VersionView may be moved to another thread and end there, even after this
// object. begin() to view() allocate nothing. prepare() reads the version once for its checksums, unless
// VersionWriter::compute_checksums() has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/status.h"
#include "store/versions/slot_file.h"
#include "store/versions/slot_header.h"

namespace sluice::store {

class VersionView;

// Owner of the buffer of a version in work. Its end without prepare() discards the version.
class VersionWriter {
 public:
  VersionWriter() noexcept = default;
  VersionWriter(VersionWriter&& other) noexcept = default;
  VersionWriter& operator=(VersionWriter&& other) noexcept;
  ~VersionWriter() { discard(); }

  [[nodiscard]] bool valid() const noexcept { return slot_ != nullptr; }
  // Holds the values of an older version: write all elements, also the padding, which is 0.
  [[nodiscard]] std::span<float> array(size_t index) const noexcept { return slot_->array(index); }
  // Of the version in work: read only what is written already. Its steps and pushes are not there yet.
  [[nodiscard]] VersionView view() const noexcept;
  // After the last write. Reads the whole version, on any thread.
  void compute_checksums() noexcept { checksums_ = slot_->checksums(); }

 private:
  friend class VersionFiles;
  void discard() noexcept;

  std::shared_ptr<SlotFile> slot_;
  std::optional<Checksums> checksums_;
};

// Read access to a prepared or committed version, whose slot is not reused before the view's end.
class VersionView {
 public:
  VersionView() noexcept = default;
  VersionView(VersionView&& other) noexcept = default;
  VersionView& operator=(VersionView&& other) noexcept;
  ~VersionView() { release(); }

  [[nodiscard]] bool valid() const noexcept { return slot_ != nullptr; }
  // Another view of the same version.
  [[nodiscard]] VersionView again() const noexcept { return {slot_, facts_}; }
  [[nodiscard]] uint64_t version() const noexcept { return facts_.version; }
  [[nodiscard]] uint64_t generation() const noexcept { return facts_.generation; }
  [[nodiscard]] uint64_t steps() const noexcept { return facts_.steps; }
  [[nodiscard]] std::span<const float> array(size_t index) const noexcept { return slot_->array(index); }
  [[nodiscard]] uint32_t checksum(size_t index) const noexcept { return facts_.checksums[index]; }
  [[nodiscard]] size_t push_count() const noexcept { return store::push_count(slot_->data()); }
  [[nodiscard]] PushIdentity push(size_t index) const noexcept { return push_at(slot_->data(), index); }

 private:
  friend class VersionFiles;
  friend class VersionWriter;
  VersionView(std::shared_ptr<SlotFile> slot, const VersionFacts& facts) noexcept;
  void release() noexcept;

  std::shared_ptr<SlotFile> slot_;
  VersionFacts facts_;
};

class VersionFiles {
 public:
  // What open() does with a version whose checksum disagrees: kRefuse fails and names the file; kDrop frees
  // the slot, for a shard of which another reducer has the version.
  enum class OnDamage : uint8_t { kRefuse, kDrop };

  // Opens the slots of the shard, and creates those that do not exist. Checks all content, so it reads all
  // versions. `shape.kept` must not change.
  [[nodiscard]] static Result<VersionFiles> open(const std::string& folder, const ShardShape& shape,
                                                 OnDamage on_damage);
  // Deletes the files of the shard. Views and an open VersionFiles keep their mappings.
  [[nodiscard]] static Result<void> remove(const std::string& folder, const ShardShape& shape);

  // Starts a version, which must be newer than committed(). kInvalidArgument: it is not, or another version
  // is in work or prepared. kWouldBlock: views read the free slot; try again after one ends.
  [[nodiscard]] Status begin(uint64_t version, uint64_t generation, VersionWriter& out) noexcept;
  // Makes the version of the writer durable and `writer` empty. `steps` made it; it contains `pushes`.
  // kTooMany: more pushes than max_pushes; the writer stays.
  [[nodiscard]] Status prepare(VersionWriter& writer, uint64_t steps,
                               std::span<const PushIdentity> pushes) noexcept;
  // kInvalidArgument: `version` is not prepared.
  [[nodiscard]] Status commit(uint64_t version) noexcept;
  [[nodiscard]] Status discard(uint64_t version) noexcept;

  [[nodiscard]] std::optional<uint64_t> committed() const noexcept;  // the newest
  [[nodiscard]] std::optional<uint64_t> prepared() const noexcept;
  // Not valid() if the version is neither prepared nor kept.
  [[nodiscard]] VersionView view(uint64_t version) const noexcept;

 private:
  struct Slot {
    std::shared_ptr<SlotFile> file;
    VersionFacts facts;  // of a version in work, prepared or committed
    [[nodiscard]] SlotState state() const noexcept { return load_state(file->data()); }
    void set(SlotState state) const noexcept { store_state(file->data(), state); }
  };
  explicit VersionFiles(const ShardShape& shape) : shape_(shape) {}

  // Reads the version of a slot that has just been opened, if there is one.
  [[nodiscard]] Result<void> recover(Slot& slot, OnDamage on_damage) const;
  // Frees committed versions that are no longer kept.
  void free_old_versions() noexcept;
  [[nodiscard]] const Slot* find(SlotState state, uint64_t version) const noexcept;
  // The newest version of a state.
  [[nodiscard]] const Slot* newest(SlotState state) const noexcept;

  ShardShape shape_;
  std::vector<Slot> slots_;
};

}  // namespace sluice::store
