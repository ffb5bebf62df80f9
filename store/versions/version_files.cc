#include "store/versions/version_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/assert.h"
#include "core/text_encoding.h"
#include "store/model/model_spec.h"

namespace sluice::store {
namespace {

std::string slot_path(const std::string& folder, const ShardShape& shape, size_t slot) {
  return folder + '/' + hex_text(shape.fingerprint) + '-' + std::to_string(shape.shard) + '.' +
         std::to_string(slot);
}

}  // namespace

VersionWriter& VersionWriter::operator=(VersionWriter&& other) noexcept {
  std::swap(slot_, other.slot_);
  std::swap(checksums_, other.checksums_);
  return *this;
}

void VersionWriter::discard() noexcept {
  if (slot_ != nullptr) store_state(slot_->data(), SlotState::kFree);
  slot_ = nullptr;
}

VersionView::VersionView(std::shared_ptr<SlotFile> slot, const VersionFacts& facts) noexcept
    : slot_(std::move(slot)), facts_(facts) {
  slot_->readers.fetch_add(1, std::memory_order_relaxed);
}

VersionView VersionWriter::view() const noexcept {
  return {slot_, {}};
}

VersionView& VersionView::operator=(VersionView&& other) noexcept {
  std::swap(slot_, other.slot_);
  std::swap(facts_, other.facts_);
  return *this;
}

void VersionView::release() noexcept {
  // The reads of this view end before the owner's next stores into the slot.
  if (slot_ != nullptr) slot_->readers.fetch_sub(1, std::memory_order_release);
  slot_ = nullptr;
}

Result<VersionFiles> VersionFiles::open(const std::string& folder, const ShardShape& shape,
                                        OnDamage on_damage) {
  SLUICE_ASSERT(shape.kept > 0 && shape.arrays > 0 && shape.arrays <= kMaxArrays);
  VersionFiles files(shape);
  std::shared_ptr<const ShardLock> lock;
  for (size_t i = 0; i <= shape.kept; ++i) {
    SLUICE_ASSIGN_OR_RETURN(file, SlotFile::open(slot_path(folder, shape, i), shape, lock));
    lock = file->shard_lock();
    files.slots_.push_back({.file = std::move(file), .facts = {}});
    SLUICE_RETURN_IF_ERROR(files.recover(files.slots_.back(), on_damage));
  }
  files.free_old_versions();
  return files;
}

Result<void> VersionFiles::recover(Slot& slot, OnDamage on_damage) const {
  const auto damaged = [&](Error error) -> Result<void> {
    if (on_damage == OnDamage::kRefuse) return tl::unexpected(std::move(error));
    slot.set(SlotState::kFree);
    return {};
  };
  const SlotState state = slot.state();
  switch (state) {
    case SlotState::kFree: return {};
    case SlotState::kWriting: slot.set(SlotState::kFree); return {};
    case SlotState::kPrepared:
    case SlotState::kCommitted: {
      auto facts = read_header(slot.file->data(), shape_);
      if (!facts) {
        Error error{facts.error().code, slot.file->path() + ": " + facts.error().text};
        if (error.code == Errc::kMismatch) return tl::unexpected(std::move(error));
        return damaged(std::move(error));
      }
      if (auto content = slot.file->check_content(*facts); !content) return damaged(content.error());
      slot.facts = *facts;
      return {};
    }
  }
  return damaged({Errc::kInvalidArgument, slot.file->path() + ": the state is " +
                                              std::to_string(static_cast<uint64_t>(state)) +
                                              ", which is none of \"free\", \"writing\", \"prepared\" and "
                                              "\"committed\""});
}

Result<void> VersionFiles::remove(const std::string& folder, const ShardShape& shape) {
  Result<void> result;
  for (size_t i = 0; i <= shape.kept; ++i) {
    const std::string path = slot_path(folder, shape, i);
    for (const std::string& name : {path, path + ".new"}) {
      if (::unlink(name.c_str()) == 0 || errno == ENOENT || !result) continue;
      result = fail(Errc::kSystem, "cannot delete " + name + ": " + std::strerror(errno));
    }
  }
  return result;
}

Status VersionFiles::begin(uint64_t version, uint64_t generation, VersionWriter& out) noexcept {
  if (newest(SlotState::kWriting) != nullptr || newest(SlotState::kPrepared) != nullptr)
    return Errc::kInvalidArgument;
  if (const Slot* current = newest(SlotState::kCommitted);
      current != nullptr && version <= current->facts.version)
    return Errc::kInvalidArgument;
  for (Slot& slot : slots_) {
    if (slot.state() != SlotState::kFree || slot.file->readers.load(std::memory_order_acquire) != 0) continue;
    slot.set(SlotState::kWriting);
    slot.facts = {.version = version, .generation = generation};
    VersionWriter writer;
    writer.slot_ = slot.file;
    out = std::move(writer);
    return {};
  }
  return Errc::kWouldBlock;
}

Status VersionFiles::prepare(VersionWriter& writer, uint64_t steps,
                             std::span<const PushIdentity> pushes) noexcept {
  const auto slot = std::ranges::find(slots_, writer.slot_, &Slot::file);
  if (slot == slots_.end()) return Errc::kInvalidArgument;
  if (pushes.size() > shape_.max_pushes) return Errc::kTooMany;
  slot->facts.steps = steps;
  slot->facts.checksums = writer.checksums_ ? *writer.checksums_ : slot->file->checksums();
  write_header(slot->file->data(), shape_, slot->facts, pushes);
  slot->set(SlotState::kPrepared);
  writer.slot_ = nullptr;
  return {};
}

Status VersionFiles::commit(uint64_t version) noexcept {
  const Slot* const slot = find(SlotState::kPrepared, version);
  if (slot == nullptr) return Errc::kInvalidArgument;
  slot->set(SlotState::kCommitted);
  free_old_versions();
  return {};
}

Status VersionFiles::discard(uint64_t version) noexcept {
  const Slot* const slot = find(SlotState::kPrepared, version);
  if (slot == nullptr) return Errc::kInvalidArgument;
  slot->set(SlotState::kFree);
  return {};
}

void VersionFiles::free_old_versions() noexcept {
  for (;;) {
    const Slot* oldest = nullptr;
    uint32_t count = 0;
    for (const Slot& slot : slots_) {
      if (slot.state() != SlotState::kCommitted) continue;
      ++count;
      if (oldest == nullptr || slot.facts.version < oldest->facts.version) oldest = &slot;
    }
    if (count <= shape_.kept) return;
    oldest->set(SlotState::kFree);
  }
}

const VersionFiles::Slot* VersionFiles::find(SlotState state, uint64_t version) const noexcept {
  for (const Slot& slot : slots_) {
    if (slot.state() == state && slot.facts.version == version) return &slot;
  }
  return nullptr;
}

const VersionFiles::Slot* VersionFiles::newest(SlotState state) const noexcept {
  const Slot* found = nullptr;
  for (const Slot& slot : slots_) {
    if (slot.state() != state) continue;
    if (found == nullptr || slot.facts.version > found->facts.version) found = &slot;
  }
  return found;
}

std::optional<uint64_t> VersionFiles::committed() const noexcept {
  const Slot* const slot = newest(SlotState::kCommitted);
  return slot == nullptr ? std::nullopt : std::optional(slot->facts.version);
}

std::optional<uint64_t> VersionFiles::prepared() const noexcept {
  const Slot* const slot = newest(SlotState::kPrepared);
  return slot == nullptr ? std::nullopt : std::optional(slot->facts.version);
}

VersionView VersionFiles::view(uint64_t version) const noexcept {
  for (const SlotState state : {SlotState::kCommitted, SlotState::kPrepared}) {
    if (const Slot* slot = find(state, version)) return {slot->file, slot->facts};
  }
  return {};
}

}  // namespace sluice::store
