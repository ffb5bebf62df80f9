#include "gpu_client/local/stage.h"

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "gpu_client/local/futex.h"
#include "reducer/kernels/fold.h"
#include "wire/dtype.h"

namespace sluice::local {
namespace {

// Up to this size the last rank to arrive makes the result: no other rank needs to wake up for it.
constexpr uint64_t kSmallOperation = 256 * kKiB;
// Up to this size, and with two ranks always, each rank sums for itself: no rank waits for the result of
// another.
constexpr uint64_t kSmallestOperation = 16 * kKiB;

uint32_t slot_of(uint64_t number) noexcept {
  return static_cast<uint32_t>(number % kSlots);
}

bool sums(wire::Kind kind) noexcept {
  return !wire::copies(kind);
}

// Where the piece begins in this rank's buffers.
const std::byte* send_at(const engine::OpRequest& r, const engine::ChunkPlace& place) noexcept {
  return r.send + (r.kind == wire::Kind::kAllGather ? place.within : place.part + place.within);
}
std::byte* recv_at(const engine::OpRequest& r, const engine::ChunkPlace& place) noexcept {
  return r.recv + (r.kind == wire::Kind::kReduceScatter ? place.within : place.part + place.within);
}

}  // namespace

Stage::Stage(const Segment& segment, engine::OpTable& table, Rank rank)
    : segment_(segment),
      table_(table),
      rank_(rank),
      ranks_(segment.ranks()),
      queue_(engine::OpTable::kCapacity) {
  const size_t groups = div_ceil(ranks_, kernels::kGroup);
  if (groups > 1) scratch_ = std::make_unique<std::byte[]>(groups * kScratchBytes);
}

void Stage::submit(uint32_t op) noexcept {
  const uint64_t index = submitted_.load(std::memory_order_relaxed);
  queue_[index % queue_.size()] = op;
  submitted_.store(index + 1, std::memory_order_seq_cst);
}

bool Stage::progress() noexcept {
  wakes_seen_ = wakes_.load(std::memory_order_seq_cst);
  // The result of a piece lets all ranks go on, so it comes first. Results are consumed while the cache holds
  // them, before more pieces begin.
  return make_next_result() || consume() || arrive();
}

bool Stage::have_all_arrived(uint64_t number) const noexcept {
  const uint64_t rounds = number / kSlots + 1;
  return segment_.slot(slot_of(number)).arrivals.load(std::memory_order_seq_cst) >= rounds * ranks_;
}

bool Stage::has_result(uint64_t number) const noexcept {
  return segment_.slot(slot_of(number)).result.load(std::memory_order_seq_cst) == number + 1;
}

void Stage::begin(Piece& p, uint64_t number) const noexcept {
  p = {.op = at(arrive_index_)};
  const engine::Operation& o = table_[p.op];
  p.place = table_.place(o, number);
  const wire::Kind kind = o.request.kind;
  if (kind == wire::Kind::kAllreduce && (ranks_ == 2 || o.bytes <= kSmallestOperation)) {
    p.maker = kEveryone;
  } else if (kind == wire::Kind::kAllreduce || kind == wire::Kind::kReduce) {
    p.maker = o.bytes <= kSmallOperation ? kLastToArrive : static_cast<Rank>(number % ranks_);
  } else {
    p.maker = p.place.owner;
  }
}

// Whoever makes the result reads its own contribution from its buffer.
bool Stage::needs_copy(const Piece& p, const engine::OpRequest& r, uint64_t number) const noexcept {
  if (!sums(r.kind)) return false;
  if (p.maker == rank_)
    return r.kind == wire::Kind::kReduceScatter && send_at(r, p.place) == recv_at(r, p.place);
  if (p.maker != kLastToArrive) return true;
  const uint64_t before = segment_.slot(slot_of(number)).arrivals.load(std::memory_order_seq_cst);
  return before + 1 != (number / kSlots + 1) * ranks_;
}

bool Stage::arrive() noexcept {
  const uint64_t number = arrived_;
  if (arrive_index_ == submitted_.load(std::memory_order_acquire) ||
      number == done_.load(std::memory_order_relaxed) + kWindow)
    return false;
  Piece& p = piece(number);
  begin(p, number);
  const engine::Operation& o = table_[p.op];
  const uint32_t slot = slot_of(number);
  if (needs_copy(p, o.request, number)) {
    copy(segment_.contribution(slot, rank_), send_at(o.request, p.place), p.place.length);
    p.is_in_slot = true;
  }
  Arrival& arrival = segment_.arrival(slot, rank_);
  arrival.announcement = {.count = o.request.count,
                          .op_id = o.op_id,
                          .piece_bytes = p.place.length,
                          .owner = p.place.owner,
                          .root = o.request.root,
                          .kind = static_cast<uint8_t>(o.request.kind),
                          .dtype = static_cast<uint8_t>(o.request.dtype),
                          .op = static_cast<uint8_t>(o.request.op)};
  arrival.next.store(number + 1, std::memory_order_release);
  const uint64_t before = segment_.slot(slot).arrivals.fetch_add(1, std::memory_order_seq_cst);
  ++arrived_;
  if (number + 1 == o.first_chunk + o.chunk_count) ++arrive_index_;
  if (before + 1 != (number / kSlots + 1) * ranks_) return true;
  // This rank is the last.
  if (!do_ranks_agree(number)) return true;
  if (p.maker == rank_ || p.maker == kLastToArrive) {
    make_result(p, number);
  } else if (p.maker == kEveryone) {
    for (Rank rank = 0; rank < ranks_; ++rank) {
      if (rank != rank_ &&
          segment_.doorbell(rank).awaited_arrivals.load(std::memory_order_seq_cst) == number + 1)
        ring(rank);
    }
  } else if (segment_.doorbell(p.maker).awaited_arrivals.load(std::memory_order_seq_cst) == number + 1) {
    ring(p.maker);
  }
  return true;
}

// Ranks that disagree may also disagree on who makes the result. So the last to arrive compares all ranks,
// and whoever makes a result has compared them too: no rank receives a result of operations that differ.
bool Stage::do_ranks_agree(uint64_t number) noexcept {
  const uint32_t slot = slot_of(number);
  const Announcement& first = segment_.arrival(slot, 0).announcement;
  for (Rank rank = 1; rank < ranks_; ++rank) {
    const Announcement& other = segment_.arrival(slot, rank).announcement;
    if (other == first) continue;
    if (!mismatch_) mismatch_ = Mismatch{.rank = rank, .its = other, .first = first};
    return false;
  }
  return true;
}

bool Stage::make_next_result() noexcept {
  for (; make_ < arrived_; ++make_) {
    Piece& p = piece(make_);
    if (p.maker != rank_ || p.is_made) continue;
    if (!have_all_arrived(make_) || !do_ranks_agree(make_)) return false;
    make_result(p, make_);
    return true;
  }
  return false;
}

void Stage::make_result(Piece& p, uint64_t number) noexcept {
  const uint32_t slot = slot_of(number);
  const engine::OpRequest& r = table_[p.op].request;
  if (r.kind == wire::Kind::kReduceScatter) {
    sum(p, slot, recv_at(r, p.place));
  } else if (sums(r.kind)) {
    sum(p, slot, segment_.result(slot));
  } else {
    copy(segment_.result(slot), send_at(r, p.place), p.place.length);
  }
  p.is_made = true;
  segment_.slot(slot).result.store(number + 1, std::memory_order_seq_cst);
  for (Rank rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_ && segment_.doorbell(rank).awaited_result.load(std::memory_order_seq_cst) == number + 1)
      ring(rank);
  }
}

void Stage::sum(const Piece& p, uint32_t slot, std::byte* out) noexcept {
  const engine::OpRequest& r = table_[p.op].request;
  for (Rank rank = 0; rank < ranks_; ++rank) {
    const bool is_in_buffer = rank == rank_ && !p.is_in_slot;
    sources_[rank] = is_in_buffer ? send_at(r, p.place) : segment_.contribution(slot, rank);
  }
  const size_t count = p.place.length / wire::size_of(r.dtype);
  counters_.bytes_summed.fetch_add(uint64_t{p.place.length} * ranks_, std::memory_order_relaxed);
  if (ranks_ > kernels::kGroup) return sum_groups(r, count, out);
  const auto fold = kernels::find_fold(r.dtype, r.op, kernels::Stage::kWhole);
  fold({sources_.data(), ranks_}, count, ranks_, out);
}

void Stage::sum_groups(const engine::OpRequest& r, size_t count, std::byte* out) noexcept {
  const auto partial = kernels::find_fold(r.dtype, r.op, kernels::Stage::kPartial);
  const auto finish = kernels::find_fold(r.dtype, r.op, kernels::Stage::kFinish);
  const size_t size = wire::size_of(r.dtype);
  const size_t most = std::max<size_t>(kScratchBytes / wire::accumulated_size_of(r.dtype), 1);
  std::array<const std::byte*, kMaxRanks / kernels::kGroup> sums;
  for (size_t done = 0; done < count;) {
    const size_t elements = std::min(most, count - done);
    size_t groups = 0;
    for (size_t first = 0; first < ranks_; first += kernels::kGroup) {
      const size_t members = std::min<size_t>(kernels::kGroup, ranks_ - first);
      std::byte* const to = scratch_.get() + groups * kScratchBytes;
      partial({sources_.data() + first, members}, elements, ranks_, to);
      sums[groups++] = to;
    }
    finish({sums.data(), groups}, elements, ranks_, out + done * size);
    for (Rank rank = 0; rank < ranks_; ++rank) sources_[rank] += elements * size;
    done += elements;
  }
}

// Whether this rank can finish the piece.
bool Stage::is_complete(uint64_t number) const noexcept {
  return pieces_[number % kSlots].maker == kEveryone ? have_all_arrived(number) : has_result(number);
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
  if (number + 1 == o.first_chunk + o.chunk_count) {
    ++done_index_;
    counters_.operations.fetch_add(1, std::memory_order_relaxed);
    table_.end(p.op, Errc::kOk);
  }
  return true;
}

void Stage::copy_out(const Piece& p, uint32_t slot) noexcept {
  const engine::OpRequest& r = table_[p.op].request;
  const bool is_owner = p.place.owner == rank_;
  switch (r.kind) {
    case wire::Kind::kReduce:
      if (is_owner) copy(recv_at(r, p.place), segment_.result(slot), p.place.length);
      break;
    case wire::Kind::kReduceScatter: break;  // the owner has summed into its buffer
    case wire::Kind::kAllGather:
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

void Stage::copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
  counters_.bytes_copied.fetch_add(bytes, std::memory_order_relaxed);
}

void Stage::end_all(Errc status) noexcept {
  const uint64_t end = submitted_.load(std::memory_order_acquire);
  for (; done_index_ != end; ++done_index_) table_.end(at(done_index_), status);
  arrive_index_ = end;
  // No piece is in flight any more.
  make_ = arrived_;
  done_.store(arrived_, std::memory_order_release);
}

bool Stage::has_work() const noexcept {
  const uint64_t done = done_.load(std::memory_order_relaxed);
  if (done < arrived_ && is_complete(done)) return true;
  // make_next_result() stops at a piece of this rank.
  if (make_ < arrived_ && have_all_arrived(make_)) return true;
  if (arrive_index_ != submitted_.load(std::memory_order_seq_cst) && arrived_ < done + kWindow) return true;
  return wakes_.load(std::memory_order_seq_cst) != wakes_seen_ ||
         segment_.failure().state.load(std::memory_order_seq_cst) == FailureRecord::kSet;
}

void Stage::ring(Rank rank) noexcept {
  std::atomic<uint32_t>& word = segment_.doorbell(rank).word;
  word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(word, 1);
}

void Stage::ring_watch(Rank rank) noexcept {
  std::atomic<uint32_t>& word = segment_.doorbell(rank).watch_word;
  word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(word);
}

void Stage::wake_all() noexcept {
  for (Rank rank = 0; rank < ranks_; ++rank) {
    ring(rank);
    ring_watch(rank);
  }
}

}  // namespace sluice::local
