#include "gpu_client/engine/data_path/chunk_ring.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"

namespace sluice::engine {

Result<ChunkRing> ChunkRing::create(uint32_t depth, uint32_t slot_bytes) {
  SLUICE_ASSERT(depth > 0 && slot_bytes > 0);
  auto memory = Arena::map(size_t{depth} * slot_bytes);
  if (!memory) return add_context("result ring", {Errc::kSystem, memory.error().text});
  return ChunkRing(depth, slot_bytes, std::move(*memory));
}

ChunkRing::ChunkRing(uint32_t depth, uint32_t slot_bytes, Arena memory)
    : depth_(depth), slot_bytes_(slot_bytes), memory_(std::move(memory)), records_(size_t{2} * depth) {}

ChunkRecord& ChunkRing::add(uint64_t chunk, uint32_t operation, const Operation& o) noexcept {
  SLUICE_DASSERT(chunk >= o.first_chunk && chunk < o.first_chunk + o.chunk_count && can_put(chunk));
  const uint64_t offset = (chunk - o.first_chunk) * o.chunk_bytes;
  ChunkRecord& r = record(chunk);
  r = {.chunk = chunk,
       .offset = offset,
       .count = o.request.count,
       .operation = operation,
       .op_id = o.op_id,
       .fingerprint = o.fingerprint,
       .length = static_cast<uint32_t>(std::min<uint64_t>(o.chunk_bytes, o.bytes - offset)),
       .dtype = o.request.dtype,
       .op = o.request.op,
       .followed = chunk + depth_ < o.first_chunk + o.chunk_count};
  return r;
}

void ChunkRing::complete(uint64_t chunk) noexcept {
  SLUICE_DASSERT(has_record(chunk) && !record(chunk).done);
  record(chunk).done = true;
  uint64_t first = first_unfinished();
  while (has_record(first) && record(first).done) ++first;
  std::atomic_ref(first_unfinished_).store(first, std::memory_order_relaxed);
}

}  // namespace sluice::engine
