// What the maker of a piece does with it: sums the contributions of its host, and with several hosts sends
// the partial sum on a rail and finishes what comes back.
#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/bytes.h"
#include "gpu_client/local/stage.h"
#include "reducer/kernels/fold.h"
#include "wire/dtype.h"

namespace sluice::local {
namespace {

wire::Op partial_op(wire::Op op) noexcept {
  return op == wire::Op::kAvg ? wire::Op::kSum : op;
}

// PIECE_OF of protocol.md: what this host's ranks agree on, and the rail's operation does not show.
std::array<std::byte, 39> piece_of(const Announcement& a, uint64_t number) noexcept {
  std::array<std::byte, 39> out{};
  store_le(&out[0], number);
  store_le(&out[8], a.count);
  store_le(&out[16], a.op_id);
  store_le(&out[20], a.piece_bytes);
  store_le(&out[24], a.owner);
  store_le(&out[28], a.root);
  store_le(&out[32], a.counts_crc);
  out[36] = std::byte{a.kind};
  out[37] = std::byte{a.dtype};
  out[38] = std::byte{a.op};
  return out;
}

}  // namespace

void Stage::make_local_part(const Piece& p, uint32_t slot) noexcept {
  const engine::OpRequest& r = table_[p.op].request;
  std::byte* const shared = segment_.result(slot);
  if (!wire::copies(r.kind)) {
    const bool is_final = rails_.empty() && r.kind == wire::Kind::kReduceScatter;
    return sum(p, slot, is_final ? recv_at(r, p.place) : shared);
  }
  if (p.parts_per_strip > 0) {
    std::byte* to = shared + host_ * strip_bytes(p);
    for (uint32_t local = p.place.owner; local < p.place.owner + p.parts_per_strip; ++local) {
      const bool is_in_buffer = local == local_;
      copy(to, is_in_buffer ? send_at(r, p.place) : segment_.contribution(slot, local), p.place.length);
      to += p.place.length;
    }
    return;
  }
  const Rank source = r.kind == wire::Kind::kBroadcast ? r.root : p.place.owner;
  if (topology_.host_of[source] != host_) return;
  const std::byte* const from =
      source == rank_ ? send_at(r, p.place) : segment_.contribution(slot, topology_.local_of[source]);
  copy(shared, from, p.place.length);
}

void Stage::sum(const Piece& p, uint32_t slot, std::byte* out) noexcept {
  const engine::OpRequest& r = table_[p.op].request;
  for (uint32_t local = 0; local < ranks_; ++local) {
    const bool is_in_buffer = local == local_ && !p.is_in_slot;
    sources_[local] = is_in_buffer ? send_at(r, p.place) : segment_.contribution(slot, local);
  }
  const size_t count = p.bytes / wire::size_of(r.dtype);
  const wire::Op op = rails_.empty() || divides_first(p) ? r.op : partial_op(r.op);
  const auto stage = p.is_wide ? kernels::Stage::kPartial : kernels::Stage::kWhole;
  kernels::find_fold(r.dtype, op, stage)({sources_.data(), ranks_}, count, topology_.ranks(), out);
}

bool Stage::divides_first(const Piece& p) const noexcept {
  const engine::OpRequest& r = table_[p.op].request;
  return r.op == wire::Op::kAvg && !p.is_wide && wire::accumulator_of(r.dtype) != r.dtype;
}

// The host whose ranks receive the result; all of them in kinds without one.
uint32_t Stage::receiving_host(const Piece& p) const noexcept {
  return topology_.host_of[p.place.owner];
}

// The size on a rail of so many bytes of the tensor.
size_t Stage::rail_bytes(const Piece& p, size_t bytes) const noexcept {
  const wire::DType t = table_[p.op].request.dtype;
  return p.is_wide ? bytes / wire::size_of(t) * wire::accumulated_size_of(t) : bytes;
}

Status Stage::start_on_rail(Piece& p, uint64_t number) noexcept {
  const uint32_t slot = slot_of(number);
  const engine::OpRequest& r = table_[p.op].request;
  std::byte* const shared = segment_.result(slot);
  engine::OpRequest rail{.send = shared, .recv = shared, .dtype = r.dtype, .op = partial_op(r.op)};
  rail.listener = this;
  if (p.is_wide) rail.dtype = wire::accumulator_of(r.dtype);
  rail.count = rail_bytes(p, p.bytes) / wire::size_of(rail.dtype);
  switch (r.kind) {
    case wire::Kind::kReduce:
    case wire::Kind::kReduceScatter:
      if (p.parts_per_strip > 0) {
        rail.kind = wire::Kind::kReduceScatter;
        rail.recv = host_result(p, slot);
        break;
      }
      rail.kind = wire::Kind::kReduce;
      rail.root = receiving_host(p);
      break;
    case wire::Kind::kAllGather:
      if (p.parts_per_strip > 0) {
        rail.kind = wire::Kind::kAllGather;
        rail.op = wire::Op::kSum;
        rail.send = shared + host_ * strip_bytes(p);
        break;
      }
      [[fallthrough]];
    case wire::Kind::kBroadcast:
      rail.kind = wire::Kind::kBroadcast;
      rail.op = wire::Op::kSum;
      rail.root = receiving_host(p);
      break;
    default: rail.kind = wire::Kind::kAllreduce;
  }
  const auto agreed = piece_of(segment_.arrival(slot, local_).announcement, number);
  rail.piece_of = agreed;
  const engine::Operation& o = table_[p.op];
  rail.call = {.count = r.count,
               .caller = {.op_id = o.op_id,
                          .root = static_cast<uint16_t>(r.root),
                          .dtype = r.dtype,
                          .kind = r.kind,
                          .op = r.op}};
  SLUICE_DASSERT(rails_[p.rail] != nullptr);
  return rails_[p.rail]->start(rail, p.handle);
}

// Finishes the oldest piece that has come back, if its operation has ended.
bool Stage::finish_rails() noexcept {
  const uint64_t ends = rail_ends_.load(std::memory_order_seq_cst);
  if (ends == rail_ends_seen_) return false;
  finish_ = std::max(finish_, done_.load(std::memory_order_relaxed));  // pieces_ has no older ones
  for (; finish_ < arrived_; ++finish_) {
    Piece& p = piece(finish_);
    if (p.maker != local_ || p.state == PieceState::kMade) continue;
    if (p.state == PieceState::kArriving) break;
    bool is_done = false;
    const Status status = rails_[p.rail]->test(p.handle, is_done);
    if (!is_done) break;
    if (!status.ok()) {
      if (rail_status_.ok()) rail_status_ = status;
      return false;
    }
    finish_piece(p, slot_of(finish_));
    publish(p, finish_);
    ++finish_;
    return true;
  }
  rail_ends_seen_ = ends;
  return false;
}

void Stage::finish_piece(const Piece& p, uint32_t slot) noexcept {
  const engine::OpRequest& r = table_[p.op].request;
  const bool others_receive = p.parts_per_strip == 0 && wire::has_owner(r.kind) && receiving_host(p) != host_;
  if (wire::copies(r.kind) || others_receive) return;
  std::byte* const shared = host_result(p, slot);
  const size_t bytes = std::max<size_t>(strip_bytes(p), p.place.length);
  const bool is_last_step = r.kind == wire::Kind::kReduceScatter && p.parts_per_strip <= 1 && is_owner(p);
  std::byte* const out = is_last_step ? recv_at(r, p.place) : shared;
  const size_t count = bytes / wire::size_of(r.dtype);
  if (!p.is_wide && (r.op != wire::Op::kAvg || divides_first(p))) {
    if (out != shared) copy(out, shared, bytes);
    return;
  }
  // Rounds and divides. The contribution's slot is free: this rank has read its own one from its buffer.
  const std::byte* source = shared;
  if (out == shared) {
    std::byte* const spare = segment_.contribution(slot, local_);
    copy(spare, shared, rail_bytes(p, bytes));
    source = spare;
  }
  const auto stage = p.is_wide ? kernels::Stage::kFinish : kernels::Stage::kWhole;
  kernels::find_fold(r.dtype, r.op, stage)({&source, 1}, count, topology_.ranks(), out);
}

void Stage::on_operation_ended() noexcept {
  rail_ends_.fetch_add(1, std::memory_order_seq_cst);
  if (is_sleeping_.load(std::memory_order_seq_cst)) ring(local_);
}

}  // namespace sluice::local
