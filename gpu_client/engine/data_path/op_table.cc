#include "gpu_client/engine/data_path/op_table.h"

#include "core/assert.h"
#include "wire/frame.h"
#include "wire/view.h"

namespace sluice::engine {

OpTable::OpTable(uint32_t lane_connections, uint32_t slot_bytes)
    : lane_connections_(lane_connections), slot_bytes_(slot_bytes), operations_(kCapacity) {
  SLUICE_ASSERT(lane_connections > 0 && slot_bytes > 0);
  free_.reserve(kCapacity);
  for (uint32_t i = kCapacity; i > 0; --i) free_.push_back(i - 1);
}

std::optional<uint32_t> OpTable::open(const OpRequest& request) noexcept {
  if (free_.empty()) return std::nullopt;
  const uint32_t index = free_.back();
  free_.pop_back();
  Operation& o = operations_[index];
  const size_t element = wire::size_of(request.dtype);
  const bool wide = wire::size_of(wire::accumulator_of(request.dtype)) > 2 * element;
  o.request = request;
  o.bytes = request.count * element;
  o.op_id = next_op_id_++;
  o.fingerprint = wire::fingerprint(request.count, request.dtype, request.op, wire::Kind::kAllreduce);
  o.chunk_bytes = wire::chunk_bytes(o.bytes, lane_connections_, slot_bytes_, wide);
  o.first_chunk = next_chunk_;
  o.chunk_count = div_ceil(o.bytes, o.chunk_bytes);
  next_chunk_ += o.chunk_count;
  ++o.generation;
  if (o.generation == 0) ++o.generation;  // a handle is never 0
  o.chunks_done = 0;
  o.previous = o.next = kNoOperation;
  o.status = Errc::kOk;
  o.state.store(OpState::kOpen, std::memory_order_relaxed);
  open_.fetch_add(1, std::memory_order_relaxed);
  return index;
}

uint64_t OpTable::handle_of(uint32_t index) const noexcept {
  return (uint64_t{operations_[index].generation} << 32) | index;
}

uint32_t OpTable::find(uint64_t handle) const noexcept {
  const auto index = static_cast<uint32_t>(handle);
  if (index >= kCapacity) return kNoOperation;
  const Operation& o = operations_[index];
  if (o.generation != handle >> 32 || o.state.load(std::memory_order_relaxed) == OpState::kFree)
    return kNoOperation;
  return index;
}

void OpTable::release(uint32_t index) noexcept {
  operations_[index].state.store(OpState::kFree, std::memory_order_relaxed);
  free_.push_back(index);
}

void OpTable::end(uint32_t index, Errc status) noexcept {
  operations_[index].status = status;
  open_.fetch_sub(1, std::memory_order_seq_cst);
  operations_[index].state.store(OpState::kEnded, std::memory_order_seq_cst);
}

}  // namespace sluice::engine
