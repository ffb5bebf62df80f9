#include "reducer/slots/chunk_slot.h"

#include <algorithm>

namespace sluice::reducer {

void ChunkSlot::begin(const wire::FrameHeader& header, uint32_t chunk_owner, uint64_t op_count,
                      const std::optional<wire::Caller>& op_caller, uint32_t rank, Nanos now) noexcept {
  state = ChunkState::kFilling;
  arrived = 0;
  first_rank = rank;
  groups_folded = 0;
  kept = false;
  accepts_sparse = true;
  first_arrival = now;
  count = op_count;
  caller = op_caller;
  reference = header;
  owner = chunk_owner;
  std::ranges::fill(group_arrived, 0);
}

const char* first_difference(const ChunkSlot& chunk, const wire::FrameHeader& b, uint32_t owner,
                             uint64_t op_count) noexcept {
  const wire::FrameHeader& a = chunk.reference;
  if (a.kind != b.kind) return "kind";
  if (a.wire_dtype != b.wire_dtype) return "dtype";
  if (a.op != b.op) return "op";
  if (a.op_id != b.op_id) return "op id";
  if (a.chunk != b.chunk) return "chunk";
  if (a.encoding != b.encoding || a.acc_dtype != b.acc_dtype || a.result_dtype != b.result_dtype)
    return "encoding";
  const bool has_parts = wire::has_parts(a.kind);
  if (chunk.owner != owner) return has_parts ? "counts" : "root";
  // Of the fingerprint's other inputs only what rails add can differ.
  if (a.fingerprint != b.fingerprint) return chunk.count != op_count ? "count" : "operation";
  if (a.length != b.length) return has_parts ? "counts" : "length";
  return nullptr;
}

const char* first_difference(const wire::Caller& a, const wire::Caller& b) noexcept {
  if (a.kind != b.kind) return "kind";
  if (a.dtype != b.dtype) return "dtype";
  if (a.op != b.op) return "op";
  if (a.op_id != b.op_id) return "op id";
  return a.root != b.root ? "root" : nullptr;
}

}  // namespace sluice::reducer
