// Class ChunkRing stores, by chunk number q, the state of this rank's latest chunks and what it has for ranks
// that may still lack their results: the result or, of a chunk that another rank owns, its contribution
// (protocol.md section 11, "Depth").
//
//   ... | kept: f - D .. f - 1 | in flight: f .. f + D - 1 | must wait ...
//
// f is the first chunk without a result. The result of q that is received here occupies buffer q mod D and
// overwrites the result of q - D. No rank can lack q - D any more: result q exists only after every rank has
// contributed q, and a rank contributes q only after it has result q - D. There are 2 D records, because
// chunk q - D may still be requested when chunk q is put.
//
// Only first_unfinished() may be called from any thread; all else belongs to the progress loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/result.h"
#include "gpu_client/engine/data_path/op_table.h"

namespace sluice::engine {

struct ChunkRecord {
  uint64_t chunk = ~uint64_t{0};
  uint64_t count = 0;  // elements of the operation; on a rail, of the callers'
  // The caller's memory of the chunk, while the operation is open. Null where this rank has none.
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  // Of a chunk that is done, what this rank contributes again: the result or, if `sends_again`, its
  // contribution. In the ring, or in the caller's buffer while the operation is open.
  const std::byte* kept = nullptr;
  uint32_t operation = kNoOperation;  // index in the table; valid until the chunk is done
  uint32_t op_id = 0;
  uint32_t fingerprint = 0;
  uint32_t length = 0;
  std::optional<wire::Caller> caller{};
  wire::DType dtype = wire::DType::kI8;
  wire::Op op = wire::Op::kSum;
  wire::Kind kind = wire::Kind::kAllreduce;
  Rank owner = 0;            // of kinds whose chunks have one
  bool contributes = true;   // this rank's contribution has a payload
  bool receives = true;      // this rank's result has one
  bool sends_again = false;  // no rank but the owner has the result of a reduced chunk
  // D more chunks of the operation follow, so the caller's buffer can hold the result as long as the ring.
  bool followed = false;
  bool done = false;
};

class ChunkRing {
 public:
  // `depth` is D, `rank` this rank. Returns kSystem when D * slot_bytes cannot be allocated.
  [[nodiscard]] static Result<ChunkRing> create(uint32_t depth, uint32_t slot_bytes, Rank rank);

  // Any thread. All other functions: the thread of the progress loop.
  [[nodiscard]] uint64_t first_unfinished() const noexcept {
    return std::atomic_ref(first_unfinished_).load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] bool can_put(uint64_t chunk) const noexcept { return chunk < first_unfinished() + depth_; }
  [[nodiscard]] bool is_done(uint64_t chunk) const noexcept {
    return chunk < first_unfinished() || (has_record(chunk) && record(chunk).done);
  }
  // The chunk was put, in this view or an earlier one, and its record is not overwritten yet.
  [[nodiscard]] bool has_record(uint64_t chunk) const noexcept { return record(chunk).chunk == chunk; }

  [[nodiscard]] ChunkRecord& record(uint64_t chunk) noexcept { return records_[chunk % records_.size()]; }
  [[nodiscard]] const ChunkRecord& record(uint64_t chunk) const noexcept {
    return records_[chunk % records_.size()];
  }
  // Writes the record of a chunk that is put for the first time, of operation `operation` in the table.
  ChunkRecord& add(uint64_t chunk, uint32_t operation, const OpTable& table) noexcept;
  [[nodiscard]] std::byte* buffer(uint64_t chunk) const noexcept {
    return memory_.data() + chunk % depth_ * slot_bytes_;
  }
  // Calls Arena::prefer_large_pages(). To be called before the first result.
  void prefer_large_pages() const noexcept { memory_.prefer_large_pages(); }
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return {memory_.data(), memory_.size()}; }
  // Marks the chunk as done. Its record says where the result is; the caller's buffer has it too.
  void complete(uint64_t chunk) noexcept;

 private:
  ChunkRing(uint32_t depth, uint32_t slot_bytes, Rank rank, Arena memory);

  void set_owner(ChunkRecord& r, const OpRequest& request, const ChunkPlace& place) const noexcept;

  uint32_t depth_;
  uint32_t slot_bytes_;
  Rank rank_;
  Arena memory_;                      // D buffers; pages are touched when the first result arrives
  std::vector<ChunkRecord> records_;  // 2 D
  // Accessed through atomic_ref, which accepts no const object, hence mutable.
  mutable uint64_t first_unfinished_ = 0;
};

}  // namespace sluice::engine
