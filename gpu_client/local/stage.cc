#include "gpu_client/local/stage.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/assert.h"
#include "core/clock.h"
#include "gpu_client/local/futex.h"
#include "reducer/kernels/fold.h"
#include "wire/dtype.h"

namespace sluice::local {
namespace {

// With one host. Up to this size the last rank to arrive makes the result: no other rank needs to wake up for
// it.
constexpr uint64_t kSmallOperation = 256 * kKiB;
// Up to this size, and with two ranks always, each rank sums for itself: no rank waits for the result of
// another.
constexpr uint64_t kSmallestOperation = 16 * kKiB;

}  // namespace

wire::ChunkSizes piece_sizes(const Geometry& geometry, uint32_t hosts) noexcept {
  const uint32_t bytes = hosts == 1 ? geometry.slot_bytes : geometry.slot_bytes / 2;
  return {.smallest = bytes, .slot_bytes = bytes};
}

uint32_t strips(const Topology& topology) noexcept {
  return topology.hosts() > 1 && topology.is_even() ? topology.hosts() : 1;
}

Stage::Stage(const Segment& segment, engine::OpTable& table, const Topology& topology, const Rails& rails,
             Rank rank)
    : segment_(segment),
      table_(table),
      topology_(topology),
      rails_(rails),
      rank_(rank),
      host_(topology.host_of[rank]),
      local_(topology.local_of[rank]),
      ranks_(segment.ranks()),
      queue_(engine::OpTable::kCapacity),
      pieces_(segment.geometry().slots) {
  SLUICE_ASSERT(ranks_ == topology.local_ranks(host_));
}

void Stage::submit(uint32_t op) noexcept {
  const uint64_t index = submitted_.load(std::memory_order_relaxed);
  queue_[index % queue_.size()] = op;
  record(blackbox::EventKind::kOperationBegan, op, Errc::kOk);
  submitted_.store(index + 1, std::memory_order_seq_cst);
}

bool Stage::progress() noexcept {
  wakes_seen_ = wakes_.load(std::memory_order_seq_cst);
  if (has_ended_) return false;
  // The result of a piece lets all ranks go on, so it comes first. Results are consumed while the cache holds
  // them, before more pieces begin.
  return finish_rails() || make_next_result() || consume() || arrive();
}

bool Stage::have_all_arrived(uint64_t number) const noexcept {
  const uint64_t arrivals = segment_.slot(slot_of(number)).arrivals.load(std::memory_order_seq_cst);
  return arrivals >= (number / pieces_.size() + 1) * ranks_;
}

bool Stage::has_result(uint64_t number) const noexcept {
  return segment_.slot(slot_of(number)).result.load(std::memory_order_seq_cst) == number + 1;
}

void Stage::begin(Piece& p, uint64_t number) const noexcept {
  p = {.op = at(arrive_index_)};
  const engine::Operation& o = table_[p.op];
  p.place = table_.place(o, number);
  if (o.parts_per_chunk > 1) p.parts_per_strip = o.parts_per_chunk / topology_.hosts();
  p.bytes = p.place.length * o.parts_per_chunk;
  const wire::Kind kind = o.request.kind;
  if (!rails_.empty()) {
    // Hosts whose ranks call different operations meet at the first piece.
    const bool is_first = number == o.first_chunk;
    p.rail = wire::has_parts(kind) && p.parts_per_strip == 0 && !is_first
                 ? topology_.local_of[p.place.owner]
                 : static_cast<uint32_t>(number % topology_.rails);
    p.maker = topology_.server_of(p.rail, host_);
    const wire::DType t = o.request.dtype;
    // Sums of 8 and 16 bits would be rounded at each host, overflow or saturate. Those of bf16 are rounded
    // once more, for half the bytes, and those of converted elements, which is why they were converted.
    const bool may_round = !is_exact_ && (t == wire::DType::kBf16 || o.request.is_converted);
    p.is_wide = !wire::copies(kind) && !may_round && wire::accumulator_of(t) != t;
  } else if (kind == wire::Kind::kAllreduce && (ranks_ == 2 || o.bytes <= kSmallestOperation)) {
    p.maker = kEveryone;
  } else if (kind == wire::Kind::kAllreduce || kind == wire::Kind::kReduce) {
    p.maker = o.bytes <= kSmallOperation ? kLastToArrive : static_cast<uint32_t>(number % ranks_);
  } else {
    p.maker = p.place.owner;
  }
}

// Whoever makes the result reads its own contribution from its buffer.
bool Stage::needs_copy(const Piece& p, const engine::OpRequest& r, uint64_t number) const noexcept {
  // Those of a reduce-scatter are apart in the buffer.
  if (p.parts_per_strip > 0)
    return r.kind == wire::Kind::kReduceScatter || (is_owner(p) && p.maker != local_);
  if (wire::copies(r.kind)) return p.place.owner == rank_ && p.maker != local_;
  if (p.maker == local_) {
    // In place, the sum would overwrite the contribution while it is read.
    return r.kind == wire::Kind::kReduceScatter && rails_.empty() &&
           send_at(r, p.place) == recv_at(r, p.place);
  }
  if (p.maker != kLastToArrive) return true;
  return !is_last(segment_.slot(slot_of(number)).arrivals.load(std::memory_order_seq_cst) + 1, number);
}

bool Stage::arrive() noexcept {
  const uint64_t number = arrived_;
  if (arrive_index_ == submitted_.load(std::memory_order_acquire) ||
      number == done_.load(std::memory_order_relaxed) + segment_.geometry().window)
    return false;
  Piece& p = piece(number);
  begin(p, number);
  const engine::Operation& o = table_[p.op];
  const uint32_t slot = slot_of(number);
  if (needs_copy(p, o.request, number)) {
    copy_in(p, slot);
    p.is_in_slot = true;
  }
  Arrival& arrival = segment_.arrival(slot, local_);
  arrival.announcement = {.count = o.request.count,
                          .op_id = o.op_id,
                          .piece_bytes = p.bytes,
                          .owner = p.place.owner,
                          .root = o.request.root,
                          .counts_crc = o.counts_crc,
                          .kind = static_cast<uint8_t>(o.request.kind),
                          .dtype = static_cast<uint8_t>(o.request.dtype),
                          .op = static_cast<uint8_t>(o.request.op)};
  arrival.next.store(number + 1, std::memory_order_release);
  const uint64_t before = segment_.slot(slot).arrivals.fetch_add(1, std::memory_order_seq_cst);
  ++arrived_;
  if (number + 1 == o.first_chunk + o.chunk_count) ++arrive_index_;
  if (recorder_ != nullptr) recorder_->piece_arrived(p.op);
  if (!is_last(before + 1, number) || !do_ranks_agree(number)) return true;
  const auto awaits = [&](uint32_t local) {
    return segment_.doorbell(local).awaited_arrivals.load(std::memory_order_seq_cst) == number + 1;
  };
  if (p.maker == kLastToArrive) {
    static_cast<void>(make_result(p, number));
  } else if (p.maker == kEveryone) {
    for (uint32_t local = 0; local < ranks_; ++local) {
      if (local != local_ && awaits(local)) ring(local);
    }
  } else if (p.maker != local_ && awaits(p.maker)) {
    ring(p.maker);
  }
  return true;
}

void Stage::copy_in(const Piece& p, uint32_t slot) noexcept {
  const engine::Operation& o = table_[p.op];
  std::byte* to = segment_.contribution(slot, local_);
  if (p.parts_per_strip == 0) return copy(to, send_at(o.request, p.place), p.bytes);
  if (o.request.kind == wire::Kind::kAllGather) return copy(to, send_at(o.request, p.place), p.place.length);
  for (const std::vector<Rank>& ranks : topology_.ranks_of) {
    for (const Rank owner : std::span(ranks).subspan(p.place.owner, p.parts_per_strip)) {
      copy(to, o.request.send + owner * o.part_bytes + p.place.within, p.place.length);
      to += p.place.length;
    }
  }
}

// Ranks that disagree may also disagree on who makes the result. So the last to arrive compares all ranks,
// and whoever makes a result has compared them too: no rank receives a result of operations that differ.
bool Stage::do_ranks_agree(uint64_t number) noexcept {
  const uint32_t slot = slot_of(number);
  const Announcement& first = segment_.arrival(slot, 0).announcement;
  for (uint32_t local = 1; local < ranks_; ++local) {
    const Announcement& other = segment_.arrival(slot, local).announcement;
    if (other == first) continue;
    if (!mismatch_) mismatch_ = Mismatch{.rank = local, .its = other, .first = first};
    return false;
  }
  return true;
}

bool Stage::make_next_result() noexcept {
  for (; make_ < arrived_; ++make_) {
    Piece& p = piece(make_);
    if (p.maker != local_ || p.state != PieceState::kArriving) continue;
    return have_all_arrived(make_) && do_ranks_agree(make_) && make_result(p, make_);
  }
  return false;
}

// Returns false if the rail has no room for another operation.
bool Stage::make_result(Piece& p, uint64_t number) noexcept {
  make_local_part(p, slot_of(number));
  if (rails_.empty()) {
    publish(p, number);
    return true;
  }
  const Status started = start_on_rail(p, number);
  if (started == Errc::kExhausted) return false;
  if (!started.ok() && rail_status_.ok()) rail_status_ = started;
  p.state = PieceState::kOnRail;
  return started.ok();
}

void Stage::publish(Piece& p, uint64_t number) noexcept {
  p.state = PieceState::kMade;
  segment_.slot(slot_of(number)).result.store(number + 1, std::memory_order_seq_cst);
  for (uint32_t local = 0; local < ranks_; ++local) {
    if (local != local_ &&
        segment_.doorbell(local).awaited_result.load(std::memory_order_seq_cst) == number + 1)
      ring(local);
  }
}

// Whether this rank can finish the piece.
bool Stage::is_complete(uint64_t number) const noexcept {
  return pieces_[slot_of(number)].maker == kEveryone ? have_all_arrived(number) : has_result(number);
}

bool Stage::consume() noexcept {
  const uint64_t number = done_.load(std::memory_order_relaxed);
  if (number == arrived_ || !is_complete(number)) return false;
  const Piece& p = piece(number);
  if (p.maker == kEveryone) {
    if (!do_ranks_agree(number)) return false;
    sum(p, slot_of(number), recv_at(table_[p.op].request, p.place));
  } else {
    copy_out(p, slot_of(number));
  }
  done_.store(number + 1, std::memory_order_release);
  const engine::Operation& o = table_[p.op];
  if (recorder_ != nullptr) recorder_->piece_ended(p.op);
  if (number + 1 == o.first_chunk + o.chunk_count) {
    ++done_index_;
    counters_.operations.fetch_add(1, std::memory_order_relaxed);
    end(p.op, Errc::kOk);
  }
  if (!rails_.empty()) {
    const Nanos now = monotonic_now();
    rail_limit_.piece_ended(p.bytes, now);
    if (done_index_ == submitted_.load(std::memory_order_acquire)) rail_limit_.idle(now);
  }
  return true;
}

void Stage::copy_out(const Piece& p, uint32_t slot) noexcept {
  const engine::OpRequest& r = table_[p.op].request;
  const bool is_owner = this->is_owner(p);
  switch (r.kind) {
    case wire::Kind::kReduce:
      if (is_owner) copy(recv_at(r, p.place), segment_.result(slot), p.place.length);
      break;
    case wire::Kind::kReduceScatter:  // the maker has written the only part of a strip to its buffer
      if (p.parts_per_strip > 1) {
        const size_t before = size_t{local_ - p.place.owner} * p.place.length;
        copy(recv_at(r, p.place), host_result(p, slot) + before, p.place.length);
      } else if (is_owner && p.maker != local_) {
        copy(recv_at(r, p.place), segment_.result(slot), p.place.length);
      }
      break;
    case wire::Kind::kAllGather:
      if (p.parts_per_strip > 0) return copy_strips(p, slot);
      [[fallthrough]];
    case wire::Kind::kBroadcast:
      if (!is_owner) {
        copy(recv_at(r, p.place), segment_.result(slot), p.place.length);
      } else if (recv_at(r, p.place) != send_at(r, p.place)) {
        copy(recv_at(r, p.place), send_at(r, p.place), p.place.length);
      }
      break;
    default: copy(recv_at(r, p.place), segment_.result(slot), p.place.length);
  }
}

// Of an all-gather, to all parts but one that is there already.
void Stage::copy_strips(const Piece& p, uint32_t slot) noexcept {
  const engine::Operation& o = table_[p.op];
  const std::byte* from = segment_.result(slot);
  for (const std::vector<Rank>& ranks : topology_.ranks_of) {
    for (const Rank owner : std::span(ranks).subspan(p.place.owner, p.parts_per_strip)) {
      std::byte* const to = o.request.recv + owner * o.part_bytes + p.place.within;
      if (owner != rank_ || to != send_at(o.request, p.place)) copy(to, from, p.place.length);
      from += p.place.length;
    }
  }
}

void Stage::copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
  counters_.bytes_copied.fetch_add(bytes, std::memory_order_relaxed);
}

void Stage::record(blackbox::EventKind kind, uint32_t op, Errc status) const noexcept {
  if (!blackbox_) return;
  const engine::Operation& o = table_[op];
  blackbox_->record_frequent(
      kind, {.peer = static_cast<uint64_t>(o.request.kind), .a = o.op_id, .b = o.bytes, .code = status});
}

void Stage::end(uint32_t op, Errc status) noexcept {
  record(blackbox::EventKind::kOperationEnded, op, status);
  if (recorder_ != nullptr) recorder_->operation_ended(op, status);
  table_.end(op, status);
}

void Stage::end_all(Errc status) noexcept {
  has_ended_ = true;
  const uint64_t last = submitted_.load(std::memory_order_acquire);
  for (; done_index_ != last; ++done_index_) end(at(done_index_), status);
  arrive_index_ = last;
  // No piece is in flight any more.
  make_ = finish_ = arrived_;
  done_.store(arrived_, std::memory_order_release);
  rail_limit_.idle(monotonic_now());
}

bool Stage::has_work() const noexcept {
  if (has_ended_) return true;  // whoever makes progress ends what was submitted since
  const uint64_t done = done_.load(std::memory_order_relaxed);
  if (done < arrived_ && is_complete(done)) return true;
  // make_next_result() stops at a piece of this rank.
  if (make_ < arrived_ && have_all_arrived(make_)) return true;
  if (rail_ends_.load(std::memory_order_seq_cst) != rail_ends_seen_) return true;
  if (arrive_index_ != submitted_.load(std::memory_order_seq_cst) &&
      arrived_ < done + segment_.geometry().window)
    return true;
  return wakes_.load(std::memory_order_seq_cst) != wakes_seen_ ||
         segment_.failure().state.load(std::memory_order_seq_cst) == FailureRecord::kSet;
}

void Stage::ring(uint32_t local) noexcept {
  std::atomic<uint32_t>& word = segment_.doorbell(local).word;
  word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(word, 1);
}

void Stage::ring_watch(uint32_t local) noexcept {
  std::atomic<uint32_t>& word = segment_.doorbell(local).watch_word;
  word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(word);
}

void Stage::wake_all() noexcept {
  for (uint32_t local = 0; local < ranks_; ++local) {
    ring(local);
    ring_watch(local);
  }
}

}  // namespace sluice::local
