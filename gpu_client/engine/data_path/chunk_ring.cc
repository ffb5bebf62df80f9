#include "gpu_client/engine/data_path/chunk_ring.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"

namespace sluice::engine {

Result<ChunkRing> ChunkRing::create(uint32_t depth, uint32_t slot_bytes, Rank rank) {
  SLUICE_ASSERT(depth > 0 && slot_bytes > 0);
  auto memory = Arena::map(size_t{depth} * slot_bytes);
  if (!memory) return add_context("result ring", {Errc::kSystem, memory.error().text});
  return ChunkRing(depth, slot_bytes, rank, std::move(*memory));
}

ChunkRing::ChunkRing(uint32_t depth, uint32_t slot_bytes, Rank rank, Arena memory)
    : depth_(depth),
      slot_bytes_(slot_bytes),
      rank_(rank),
      memory_(std::move(memory)),
      records_(size_t{2} * depth) {}

ChunkRecord& ChunkRing::add(uint64_t chunk, uint32_t operation, const OpTable& table) noexcept {
  const Operation& o = table[operation];
  const OpRequest& request = o.request;
  SLUICE_DASSERT(chunk >= o.first_chunk && chunk < o.first_chunk + o.chunk_count && can_put(chunk));
  ChunkRecord& r = record(chunk);
  r = {.chunk = chunk,
       .count = request.count,
       .operation = operation,
       .op_id = o.op_id,
       .fingerprint = o.fingerprint,
       .dtype = request.dtype,
       .op = request.op,
       .kind = request.kind,
       .followed = chunk + depth_ < o.first_chunk + o.chunk_count};
  if (request.call) {
    r.count = request.call->count;
    r.caller = request.call->caller;
  }
  if (wire::has_owner(r.kind)) {
    set_owner(r, request, table.place(o, chunk));
    return r;
  }
  const uint64_t offset = (chunk - o.first_chunk) * o.chunk_bytes;
  r.length = static_cast<uint32_t>(std::min<uint64_t>(o.chunk_bytes, o.bytes - offset));
  r.send = request.send + offset;
  r.recv = request.recv + offset;
  return r;
}

void ChunkRing::set_owner(ChunkRecord& r, const OpRequest& request, const ChunkPlace& place) const noexcept {
  r.length = place.length;
  r.owner = place.owner;
  r.contributes = wire::contributes(r.kind, r.owner, rank_);
  r.receives = wire::receives(r.kind, r.owner, rank_);
  r.sends_again = !wire::copies(r.kind) && r.owner != rank_;
  // A buffer that has only this rank's part begins with that part.
  const bool sends_part = r.kind == wire::Kind::kAllGather;
  const bool gets_part = r.kind == wire::Kind::kReduceScatter;
  if (r.contributes) r.send = request.send + place.within + (sends_part ? 0 : place.part);
  if (r.receives || wire::copies(r.kind)) r.recv = request.recv + place.within + (gets_part ? 0 : place.part);
}

void ChunkRing::complete(uint64_t chunk) noexcept {
  SLUICE_DASSERT(has_record(chunk) && !record(chunk).done);
  record(chunk).done = true;
  uint64_t first = first_unfinished();
  while (has_record(first) && record(first).done) ++first;
  std::atomic_ref(first_unfinished_).store(first, std::memory_order_relaxed);
}

}  // namespace sluice::engine
