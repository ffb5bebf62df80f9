// What the rank knows of its last chunks, by chunk number q, whatever connection they went or came by: who
// asked for them, which are done, and their results for as long as another rank may miss them (PROTOCOL.md
// section 11, "Depth").
//
//   ... | kept: f - D .. f - 1 | under way: f .. f + D - 1 | not yet to be put ...
//
// f is the first chunk without a result. A result received here lies in place q mod D. That displaces the one
// of q - D, which nobody can miss any more: result q exists only since every rank has contributed q, and none
// does so before it has q - D. A record outlives the place: q - D may still be asked for when q is put.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/result.h"
#include "gpu_client/engine/op_table.h"

namespace sluice::engine {

struct ChunkRecord {
  uint64_t chunk = ~uint64_t{0};
  uint64_t offset = 0;  // in its operation
  uint64_t count = 0;   // elements of the operation
  // Where its result lies once it is done, and may be: in the ring, or in the caller's buffer while the
  // operation is open.
  const std::byte* result = nullptr;
  uint32_t operation = kNoOperation;  // in the table, while the chunk is not done
  uint32_t op_id = 0;
  uint32_t fingerprint = 0;
  uint32_t length = 0;
  wire::DType dtype = wire::DType::kI8;
  wire::Op op = wire::Op::kSum;
  bool followed = false;  // by D more of its operation: the caller's buffer can keep its result
  bool done = false;
};

class ChunkRing {
 public:
  // `depth`: D. kSystem when there is no memory for D * slot_bytes.
  [[nodiscard]] static Result<ChunkRing> create(uint32_t depth, uint32_t slot_bytes);

  // Any thread; the rest is the driver's.
  [[nodiscard]] uint64_t first_unfinished() const noexcept {
    return std::atomic_ref(first_unfinished_).load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] bool may_put(uint64_t chunk) const noexcept { return chunk < first_unfinished() + depth_; }
  [[nodiscard]] bool done(uint64_t chunk) const noexcept {
    return chunk < first_unfinished() || (known(chunk) && record(chunk).done);
  }
  // The chunk was put before, in this view or another, and its record is there.
  [[nodiscard]] bool known(uint64_t chunk) const noexcept { return record(chunk).chunk == chunk; }

  [[nodiscard]] ChunkRecord& record(uint64_t chunk) noexcept { return records_[chunk % records_.size()]; }
  [[nodiscard]] const ChunkRecord& record(uint64_t chunk) const noexcept {
    return records_[chunk % records_.size()];
  }
  // Writes the record of a chunk that is put for the first time; `operation` has it.
  ChunkRecord& enter(uint64_t chunk, uint32_t operation, const Operation& o) noexcept;
  [[nodiscard]] std::byte* place(uint64_t chunk) const noexcept {
    return memory_.data() + chunk % depth_ * slot_bytes_;
  }
  // As Arena has it; before the first result.
  void prefer_large_pages() const noexcept { memory_.prefer_large_pages(); }
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return {memory_.data(), memory_.size()}; }
  // Its result is where the record says, and in the caller's buffer.
  void finish(uint64_t chunk) noexcept;

 private:
  ChunkRing(uint32_t depth, uint32_t slot_bytes, Arena memory);

  uint32_t depth_;
  uint32_t slot_bytes_;
  Arena memory_;                           // D places, touched as they fill
  std::vector<ChunkRecord> records_;       // 2 D
  mutable uint64_t first_unfinished_ = 0;  // through an atomic_ref; mutable, since that takes no const
};

}  // namespace sluice::engine
