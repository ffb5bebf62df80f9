#include "gpu_client/engine/data_path/op_table.h"

#include <algorithm>
#include <numeric>

#include "core/assert.h"
#include "core/crc32c.h"
#include "wire/frame.h"
#include "wire/view.h"

namespace sluice::engine {
namespace {

constexpr uint32_t kAlign = 64;

// The bytes of each part in a chunk of so many parts: whole elements. 0 if the chunk is too small.
uint32_t bytes_of_part(uint32_t chunk_bytes, uint32_t parts, wire::DType dtype) noexcept {
  const auto unit = wire::is_block(dtype) ? static_cast<uint32_t>(wire::size_of(dtype)) : kAlign;
  return chunk_bytes / parts / unit * unit;
}

}  // namespace

OpTable::OpTable(uint32_t lane_connections, const wire::ChunkSizes& chunk_sizes, uint32_t ranks,
                 uint32_t parts_per_chunk)
    : lane_connections_(lane_connections),
      chunk_sizes_(chunk_sizes),
      ranks_(ranks),
      parts_per_chunk_(parts_per_chunk),
      operations_(kCapacity) {
  SLUICE_ASSERT(lane_connections > 0 && chunk_sizes.slot_bytes > 0 && ranks > 0);
  SLUICE_ASSERT(parts_per_chunk > 0 && ranks % parts_per_chunk == 0);
  free_.reserve(kCapacity);
  for (uint32_t i = kCapacity; i > 0; --i) free_.push_back(i - 1);
}

std::optional<uint32_t> OpTable::open(const OpRequest& request) {
  if (free_.empty()) return std::nullopt;
  const uint32_t index = free_.back();
  Operation& o = operations_[index];
  const size_t element = wire::size_of(request.dtype);
  o.request = request;
  o.bytes = request.count * element;
  o.fingerprint = wire::fingerprint(request.count, request.dtype, request.op, request.kind, request.root,
                                    request.piece_of);
  o.chunk_bytes = wire::chunk_bytes(o.bytes, lane_connections_, chunk_sizes_, request.dtype);
  o.first_chunk = next_chunk_;
  o.chunk_count = div_ceil(o.bytes, o.chunk_bytes);
  o.part_bytes = 0;
  o.parts_per_chunk = 1;
  o.places.clear();
  o.counts_crc = 0;
  if (wire::has_parts(request.kind)) divide_into_parts(o, request, element);
  o.request.counts = {};  // the caller's, valid during this call
  o.request.piece_of = {};
  free_.pop_back();
  o.op_id = next_op_id_++;
  next_chunk_ += o.chunk_count;
  ++o.generation;
  if (o.generation == 0) ++o.generation;  // a handle is never 0
  o.chunks_done = 0;
  o.findings = {};
  o.previous = o.next = kNoOperation;
  o.status = Errc::kOk;
  o.state.store(OpState::kOpen, std::memory_order_relaxed);
  open_.fetch_add(1, std::memory_order_relaxed);
  return index;
}

void OpTable::divide_into_parts(Operation& o, const OpRequest& request, size_t element) const {
  const bool equal =
      std::ranges::adjacent_find(request.counts, std::not_equal_to<>()) == request.counts.end();
  if (equal) {
    o.part_bytes = o.bytes / ranks_;
    if (parts_per_chunk_ > 1) group_parts(o, request.dtype);
    o.chunk_count = div_ceil(o.part_bytes, o.chunk_bytes) * (ranks_ / o.parts_per_chunk);
    return;
  }
  o.counts_crc = crc32c(std::as_bytes(request.counts));
  const size_t longest = std::ranges::max(request.counts) * element;
  for (uint64_t within = 0; within < longest; within += o.chunk_bytes) {
    // The order of the turns begins with the same rank in each round: protocol.md section 8.
    const auto first = static_cast<uint32_t>(o.first_chunk % ranks_);
    for (uint32_t turn = 0; turn < ranks_; ++turn) {
      const Rank owner = (first + turn) % ranks_;
      const uint64_t bytes = request.counts[owner] * element;
      if (within >= bytes) continue;
      const size_t before =
          std::accumulate(request.counts.begin(), request.counts.begin() + owner, size_t{0});
      o.places.push_back(
          {.owner = owner,
           .part = before * element,
           .within = within,
           .length = static_cast<uint32_t>(std::min<uint64_t>(o.chunk_bytes, bytes - within))});
    }
  }
  o.chunk_count = o.places.size();
}

void OpTable::group_parts(Operation& o, wire::DType dtype) const noexcept {
  const bool is_one_chunk = o.bytes <= o.chunk_bytes;
  const uint32_t parts = is_one_chunk ? ranks_ : parts_per_chunk_;
  const uint32_t bytes =
      is_one_chunk ? static_cast<uint32_t>(o.part_bytes) : bytes_of_part(o.chunk_bytes, parts, dtype);
  if (bytes == 0) return;
  o.parts_per_chunk = parts;
  o.chunk_bytes = bytes;
}

ChunkPlace OpTable::place(const Operation& o, uint64_t chunk) const noexcept {
  const uint64_t number = chunk - o.first_chunk;
  if (!o.places.empty()) return o.places[number];
  ChunkPlace place{.owner = o.request.root};
  uint64_t bytes = o.bytes;
  uint64_t index = number;
  if (o.part_bytes != 0) {
    const uint32_t turns = ranks_ / o.parts_per_chunk;
    place.owner = static_cast<Rank>(chunk % turns);
    if (o.parts_per_chunk == 1) place.part = place.owner * o.part_bytes;
    bytes = o.part_bytes;
    index = number / turns;
  }
  place.within = index * o.chunk_bytes;
  place.length = static_cast<uint32_t>(std::min<uint64_t>(o.chunk_bytes, bytes - place.within));
  return place;
}

std::span<const std::byte> OpTable::result(uint32_t index, Rank rank) const noexcept {
  const Operation& o = operations_[index];
  const OpRequest& request = o.request;
  if (request.on_device || (request.kind == wire::Kind::kReduce && request.root != rank)) return {};
  if (request.kind != wire::Kind::kReduceScatter) return {request.recv, o.bytes};
  uint64_t bytes = o.part_bytes;
  for (const ChunkPlace& p : o.places) bytes += p.owner == rank ? p.length : 0;
  return {request.recv, bytes};
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

bool OpTable::release_if_ended(uint64_t handle, Status& status) noexcept {
  const uint32_t index = find(handle);
  status = index == kNoOperation ? Errc::kInvalidArgument : Errc::kOk;
  if (index == kNoOperation) return false;
  const Operation& o = operations_[index];
  if (o.state.load(std::memory_order_acquire) != OpState::kEnded) return false;
  status = o.status;
  release(index);
  return true;
}

void OpTable::end(uint32_t index, Errc status) noexcept {
  Operation& o = operations_[index];
  EndListener* const listener = o.request.listener;  // before another operation takes the entry
  o.status = status;
  open_.fetch_sub(1, std::memory_order_seq_cst);
  o.state.store(OpState::kEnded, std::memory_order_seq_cst);
  if (listener != nullptr) listener->on_operation_ended();
}

}  // namespace sluice::engine
