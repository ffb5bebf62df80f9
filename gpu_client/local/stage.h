// Class Stage is the data path of the ranks that share a host. Every operation is divided into pieces. For
// each piece all ranks of the host arrive at its slot, which copies their contribution where the kind has
// one. Then one rank, the maker, makes the result, and the ranks that receive it copy it out.
//
//   kind            contributes   the maker is       the result goes to
//   allreduce       all           any                shared memory, all copy it
//   reduce          all           any                shared memory, the root copies it
//   reduce-scatter  all           the owner          the owner's buffer
//   all-gather      the owner     the owner          shared memory, the others copy it
//   broadcast       the root      any                shared memory, the others copy it
//
// With one host the maker has the result at once (docs/design/adr/0027). Otherwise the piece then travels on
// a rail, between the makers of all hosts: allreduce as such, reduce and reduce-scatter as a reduce to the
// host of the rank that receives, all-gather and broadcast as a broadcast from the host of the rank that
// contributes. "The owner" is then, on the other hosts, the rank that serves the owner's rail (topology.h).
// Reduce-scatters and all-gathers with equal parts on hosts with equally many ranks travel as such: a piece
// has a strip for each host, of the parts of the ranks with one local index, whose rail it is. So a rail
// without reducers can add each strip on the host that receives it. An operation that fits into one piece is
// one: its strips have the parts of all ranks of a host.
// The first piece of an operation travels on a rail that its number tells, whatever the kind: so the reducers
// notice hosts whose ranks call different operations.
//
// Threads. submit(), wake() and wake_all() may be called on any thread, the first by one at a time. All other
// functions belong to the thread that makes progress; LocalSession decides which.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "blackbox/event_source.h"
#include "core/ids.h"
#include "core/status.h"
#include "core/units.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/session/collective_session.h"
#include "gpu_client/local/rail_limit.h"
#include "gpu_client/local/recorder.h"
#include "gpu_client/local/segment.h"
#include "gpu_client/local/topology.h"

namespace sluice::local {

// The sessions of this rank, by rail; null for those that other ranks of the host serve. Empty with one host.
using Rails = std::vector<std::unique_ptr<engine::CollectiveSession>>;

// The piece sizes for the OpTable. With several hosts a slot also holds the accumulators of a piece.
[[nodiscard]] wire::ChunkSizes piece_sizes(const Geometry& geometry, uint32_t hosts) noexcept;

// The strips of a piece, for the OpTable.
[[nodiscard]] uint32_t strips(const Topology& topology) noexcept;

class Stage final : engine::EndListener {
 public:
  // A disagreement that this rank has found: between `rank` of this host and its first rank.
  struct Mismatch {
    uint32_t rank = 0;
    Announcement its, first;
  };
  struct Counters {
    std::atomic<uint64_t> operations{0};    // ended with kOk
    std::atomic<uint64_t> bytes_copied{0};  // between buffers and the segment
  };

  // All arguments outlive the object. `rank` is the global one.
  Stage(const Segment& segment, engine::OpTable& table, const Topology& topology, const Rails& rails,
        Rank rank);

  // Before the first operation: partial sums of bf16 and of converted elements travel as f32.
  void set_exact() noexcept { is_exact_ = true; }
  // Before the first operation that shall be recorded. `recorder` outlives the object.
  void set_recorder(Recorder* recorder) noexcept { recorder_ = recorder; }
  // Before the first operation, for the rails.
  [[nodiscard]] RailLimit& rail_limit() noexcept { return rail_limit_; }
  // The same for the begin and end of operations in the black box.
  void set_black_box(const blackbox::EventSource& events) noexcept { blackbox_ = events; }
  // Adds an open operation. The table's capacity bounds their number.
  void submit(uint32_t op) noexcept;

  // Does the next thing that can be done, for one piece. Returns false when there is none.
  [[nodiscard]] bool progress() noexcept;
  // Set when ranks disagree; the session must end.
  [[nodiscard]] const std::optional<Mismatch>& mismatch() const noexcept { return mismatch_; }
  // The status of an operation that failed on a rail; the session must end.
  [[nodiscard]] Status rail_status() const noexcept { return rail_status_; }
  // Ends all open operations with this status, and later ones at the next call; progress() does nothing any
  // more: pieces that did not arrive are counted by the table, but not here. Rails use the segment's memory
  // only, so what is still on one does not touch the buffers of an operation.
  void end_all(Errc status) noexcept;

  // Calls sleeper(word, seen), which sleeps until the word differs from `seen`: then progress() may find
  // work, or wake() was called. Does not call it if there is work already.
  template <typename Sleeper>
  void sleep(Sleeper sleeper) noexcept;
  // Ends the current sleep, or that after the current call of progress(). Any thread.
  void wake() noexcept {
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    if (is_sleeping_.load(std::memory_order_seq_cst)) ring(local_);
  }
  // Ends the sleep of all ranks, also of the threads that watch, after a change of the failure record. Any
  // thread.
  void wake_all() noexcept;
  // Wakes this rank's thread that watches. Any thread.
  void wake_watch() noexcept { ring_watch(local_); }

  // The first rank of this host (its local index) that has not arrived at the oldest unfinished piece and for
  // which `pred` holds, and how many there are. Any thread; a rank that arrives meanwhile may be counted.
  template <typename Predicate>
  [[nodiscard]] uint32_t count_missing(uint32_t& first, Predicate pred) const noexcept;
  // True if another rank of this host makes the oldest unfinished piece, so that it knows more of it.
  [[nodiscard]] bool has_other_maker() const noexcept {
    const uint64_t number = done_.load(std::memory_order_relaxed);
    return number < arrived_ && pieces_[slot_of(number)].maker < ranks_ &&
           pieces_[slot_of(number)].maker != local_;
  }
  // Number of pieces that this rank has finished. Any thread.
  [[nodiscard]] uint64_t pieces_done() const noexcept { return done_.load(std::memory_order_acquire); }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const engine::Operation* oldest() const noexcept {
    return done_index_ == submitted_.load(std::memory_order_acquire) ? nullptr : &table_[at(done_index_)];
  }

 private:
  enum class PieceState : uint8_t { kArriving, kOnRail, kMade };
  // A piece in flight, as this rank sees it.
  struct Piece {
    uint32_t op = 0;
    uint32_t maker = 0;  // of the result, by its local index; or one of the values below
    uint32_t rail = 0;   // with several hosts
    uint32_t bytes = 0;  // of the tensor, in all strips
    // More than 0: the piece has strips, each with so many parts, of the ranks with the local indices from
    // place.owner on. place.within and place.length are of each part.
    uint32_t parts_per_strip = 0;
    bool is_in_slot = false;                   // this rank's contribution was copied
    bool is_wide = false;                      // accumulators travel on the rail
    PieceState state = PieceState::kArriving;  // of the maker
    uint64_t handle = 0;                       // of the rail's operation
    engine::ChunkPlace place{};
  };
  static constexpr uint32_t kLastToArrive = ~uint32_t{0};
  static constexpr uint32_t kEveryone = kLastToArrive - 1;

  [[nodiscard]] uint32_t at(uint64_t index) const noexcept { return queue_[index % queue_.size()]; }
  [[nodiscard]] uint32_t slot_of(uint64_t number) const noexcept {
    return static_cast<uint32_t>(number % pieces_.size());
  }
  [[nodiscard]] Piece& piece(uint64_t number) noexcept { return pieces_[slot_of(number)]; }
  [[nodiscard]] bool is_last(uint64_t arrivals, uint64_t number) const noexcept {
    return arrivals == (number / pieces_.size() + 1) * ranks_;
  }

  // Where the piece begins in this rank's buffers.
  [[nodiscard]] static const std::byte* send_at(const engine::OpRequest& r,
                                                const engine::ChunkPlace& place) noexcept {
    return r.send + (r.kind == wire::Kind::kAllGather ? place.within : place.part + place.within);
  }
  [[nodiscard]] static std::byte* recv_at(const engine::OpRequest& r,
                                          const engine::ChunkPlace& place) noexcept {
    return r.recv + (r.kind == wire::Kind::kReduceScatter ? place.within : place.part + place.within);
  }

  // stage.cc
  [[nodiscard]] bool arrive() noexcept;
  void begin(Piece& p, uint64_t number) const noexcept;
  [[nodiscard]] bool needs_copy(const Piece& p, const engine::OpRequest& r, uint64_t number) const noexcept;
  void copy_in(const Piece& p, uint32_t slot) noexcept;
  [[nodiscard]] bool do_ranks_agree(uint64_t number) noexcept;
  [[nodiscard]] bool make_next_result() noexcept;
  [[nodiscard]] bool make_result(Piece& p, uint64_t number) noexcept;
  void publish(Piece& p, uint64_t number) noexcept;
  [[nodiscard]] bool consume() noexcept;
  void copy_out(const Piece& p, uint32_t slot) noexcept;
  void copy_strips(const Piece& p, uint32_t slot) noexcept;
  void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept;
  [[nodiscard]] bool have_all_arrived(uint64_t number) const noexcept;
  [[nodiscard]] bool has_result(uint64_t number) const noexcept;
  [[nodiscard]] bool is_complete(uint64_t number) const noexcept;
  [[nodiscard]] bool has_work() const noexcept;
  void record(blackbox::EventKind kind, uint32_t op, Errc status) const noexcept;
  void end(uint32_t op, Errc status) noexcept;
  void ring(uint32_t local) noexcept;
  void ring_watch(uint32_t local) noexcept;

  // stage_sum.cc
  void sum(const Piece& p, uint32_t slot, std::byte* out) noexcept;
  void make_local_part(const Piece& p, uint32_t slot) noexcept;
  [[nodiscard]] Status start_on_rail(Piece& p, uint64_t number) noexcept;
  [[nodiscard]] bool finish_rails() noexcept;
  void finish_piece(const Piece& p, uint32_t slot) noexcept;
  [[nodiscard]] size_t rail_bytes(const Piece& p, size_t bytes) const noexcept;
  [[nodiscard]] static size_t strip_bytes(const Piece& p) noexcept {
    return size_t{p.parts_per_strip} * p.place.length;
  }
  // Of a reduce-scatter: this host's strip, or all of the piece, as it comes back from the rail.
  [[nodiscard]] std::byte* host_result(const Piece& p, uint32_t slot) const noexcept {
    return segment_.result(slot) + host_ * rail_bytes(p, strip_bytes(p));
  }
  [[nodiscard]] uint32_t receiving_host(const Piece& p) const noexcept;
  // Averages divide once: at the end, after a sum that is exact or in f32; but partial sums that are rounded
  // for the rail, before, in f32: the rail's result is then the average, and is not rounded once more.
  [[nodiscard]] bool divides_first(const Piece& p) const noexcept;
  // Whether the piece has a part that this rank owns.
  [[nodiscard]] bool is_owner(const Piece& p) const noexcept {
    return p.parts_per_strip > 0 ? local_ - p.place.owner < p.parts_per_strip : p.place.owner == rank_;
  }
  void on_operation_ended() noexcept override;

  const Segment& segment_;
  engine::OpTable& table_;
  const Topology& topology_;
  const Rails& rails_;
  const Rank rank_;
  const uint32_t host_;
  const uint32_t local_;  // this rank's index on its host
  const uint32_t ranks_;  // of the host

  // Operations in the order of their submission: [done_index_, arrive_index_) have pieces in flight.
  std::vector<uint32_t> queue_;
  std::atomic<uint64_t> submitted_{0};
  uint64_t arrive_index_ = 0, done_index_ = 0;
  bool has_ended_ = false;
  bool is_exact_ = false;

  // Piece numbers: done_, finish_ <= make_ <= arrived_ <= done_ + window.
  uint64_t arrived_ = 0;
  uint64_t make_ = 0;    // the first piece that this rank may have to make
  uint64_t finish_ = 0;  // the first piece that may be on a rail of this rank
  std::atomic<uint64_t> done_{0};
  std::vector<Piece> pieces_;  // one for each slot

  std::atomic<uint64_t> wakes_{0};
  uint64_t wakes_seen_ = 0;  // at the start of progress()
  std::atomic<uint64_t> rail_ends_{0};
  uint64_t rail_ends_seen_ = 0;
  std::atomic<bool> is_sleeping_{false};

  std::array<const std::byte*, kMaxRanks> sources_{};  // of the piece that is summed
  std::optional<Mismatch> mismatch_;
  Status rail_status_;
  RailLimit rail_limit_;
  Counters counters_;
  Recorder* recorder_ = nullptr;
  std::optional<blackbox::EventSource> blackbox_;
};

template <typename Sleeper>
void Stage::sleep(Sleeper sleeper) noexcept {
  Doorbell& bell = segment_.doorbell(local_);
  const uint32_t seen = bell.word.load(std::memory_order_seq_cst);
  // A rank that completes a piece stores that, and then loads what this rank awaits. This rank stores what it
  // awaits, and then looks once more. All four are sequentially consistent, so one of the two sees the other.
  const uint64_t done = done_.load(std::memory_order_relaxed);
  const bool sums_itself = done < arrived_ && pieces_[slot_of(done)].maker == kEveryone;
  const uint64_t make = sums_itself ? done : make_;
  bell.awaited_result.store(done < arrived_ ? done + 1 : 0, std::memory_order_seq_cst);
  bell.awaited_arrivals.store(make < arrived_ ? make + 1 : 0, std::memory_order_seq_cst);
  is_sleeping_.store(true, std::memory_order_seq_cst);
  if (!has_work()) sleeper(bell.word, seen);
  is_sleeping_.store(false, std::memory_order_relaxed);
  bell.awaited_result.store(0, std::memory_order_relaxed);
  bell.awaited_arrivals.store(0, std::memory_order_relaxed);
}

template <typename Predicate>
uint32_t Stage::count_missing(uint32_t& first, Predicate pred) const noexcept {
  const uint64_t number = pieces_done();
  uint32_t count = 0;
  for (uint32_t local = 0; local < ranks_; ++local) {
    if (local == local_ || !pred(local)) continue;
    const uint64_t next = segment_.arrival(slot_of(number), local).next.load(std::memory_order_acquire);
    if (next <= number && count++ == 0) first = local;
  }
  return count;
}

}  // namespace sluice::local
