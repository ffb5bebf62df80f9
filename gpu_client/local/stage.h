// Class Stage is the data path of a session whose ranks share a host. Every operation is divided into pieces.
// For each piece all ranks arrive at its slot, which copies their contribution where the kind has one. Then
// one rank makes the result, and the ranks that receive it copy it out (docs/design/adr/0027).
//
//   kind            contributes   makes the result from      result goes to
//   allreduce       all           all, summed                shared memory, all copy it
//   reduce          all           all, summed                shared memory, the root copies it
//   reduce-scatter  all           all, summed by the owner   the owner's buffer
//   all-gather      none          the owner's buffer         shared memory, the others copy it
//   broadcast       none          the root's buffer          shared memory, the others copy it
//
// Who makes the result: the owner or root in kinds that have one at the data; in allreduce and reduce rank
// q mod ranks for piece q, or for small operations the rank that arrives last, which needs no other to wake
// up.
//
// Threads. submit() may run on any thread, one at a time. All other functions belong to the thread that makes
// progress; LocalSession decides which.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "core/units.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/local/segment.h"

namespace sluice::local {

// The piece sizes of a session in shared memory, for the OpTable.
inline constexpr wire::ChunkSizes kPieceSizes{.smallest = kSlotBytes, .slot_bytes = kSlotBytes};

class Stage {
 public:
  // A disagreement that this rank has found: between `rank` and rank 0.
  struct Mismatch {
    Rank rank = 0;
    Announcement its, first;
  };
  struct Counters {
    std::atomic<uint64_t> operations{0};    // ended with kOk
    std::atomic<uint64_t> bytes_copied{0};  // between buffers and the segment
    std::atomic<uint64_t> bytes_summed{0};  // of contributions, by this rank
  };

  // `segment` and `table` outlive the object.
  Stage(const Segment& segment, engine::OpTable& table, Rank rank);

  // Adds an open operation. The table's capacity bounds their number.
  void submit(uint32_t op) noexcept;

  // Does the next thing that can be done, for one piece. Returns false when there is none.
  [[nodiscard]] bool progress() noexcept;
  // Set when ranks disagree; the session must end.
  [[nodiscard]] const std::optional<Mismatch>& mismatch() const noexcept { return mismatch_; }
  // Ends all open operations with this status.
  void end_all(Errc status) noexcept;

  // Calls sleeper(word, seen), which sleeps until the word differs from `seen`: then progress() may find
  // work, or wake() was called. Does not call it if there is work already.
  template <typename Sleeper>
  void sleep(Sleeper sleeper) noexcept;
  // Ends the current sleep, or that after the current call of progress(). Any thread.
  void wake() noexcept {
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    ring(rank_);
  }
  // Ends the sleep of all ranks, also of the threads that watch, after a change of the failure record. Any
  // thread.
  void wake_all() noexcept;
  // Wakes this rank's thread that watches. Any thread.
  void wake_watch() noexcept { ring_watch(rank_); }

  // The first rank that has not arrived at the oldest unfinished piece and for which `pred` holds, and how
  // many there are. Any thread; a rank that arrives meanwhile may be counted.
  template <typename Predicate>
  [[nodiscard]] uint32_t count_missing(Rank& first, Predicate pred) const noexcept;
  // Number of pieces that this rank has finished. Any thread.
  [[nodiscard]] uint64_t pieces_done() const noexcept { return done_.load(std::memory_order_acquire); }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const engine::Operation* oldest() const noexcept {
    return done_index_ == submitted_.load(std::memory_order_acquire) ? nullptr : &table_[at(done_index_)];
  }

 private:
  // Of the partial sums of each group, so that all of them stay in the cache.
  static constexpr size_t kScratchBytes = 16 * kKiB;

  // A piece in flight, as this rank sees it.
  struct Piece {
    uint32_t op = 0;
    Rank maker = 0;           // of the result; or one of the values below
    bool is_in_slot = false;  // this rank's contribution was copied
    bool is_made = false;     // by this rank
    engine::ChunkPlace place{};
  };
  static constexpr Rank kLastToArrive = ~Rank{0};
  static constexpr Rank kEveryone = kLastToArrive - 1;

  [[nodiscard]] uint32_t at(uint64_t index) const noexcept { return queue_[index % queue_.size()]; }
  [[nodiscard]] Piece& piece(uint64_t number) noexcept { return pieces_[number % kSlots]; }
  [[nodiscard]] bool arrive() noexcept;
  [[nodiscard]] bool make_next_result() noexcept;
  [[nodiscard]] bool consume() noexcept;
  void begin(Piece& p, uint64_t number) const noexcept;
  [[nodiscard]] bool needs_copy(const Piece& p, const engine::OpRequest& r, uint64_t number) const noexcept;
  [[nodiscard]] bool do_ranks_agree(uint64_t number) noexcept;
  void make_result(Piece& p, uint64_t number) noexcept;
  void sum(const Piece& p, uint32_t slot, std::byte* out) noexcept;
  void sum_groups(const engine::OpRequest& r, size_t count, std::byte* out) noexcept;
  void copy_out(const Piece& p, uint32_t slot) noexcept;
  void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept;
  [[nodiscard]] bool have_all_arrived(uint64_t number) const noexcept;
  [[nodiscard]] bool has_result(uint64_t number) const noexcept;
  [[nodiscard]] bool is_complete(uint64_t number) const noexcept;
  [[nodiscard]] bool has_work() const noexcept;
  void ring(Rank rank) noexcept;
  void ring_watch(Rank rank) noexcept;

  const Segment& segment_;
  engine::OpTable& table_;
  const Rank rank_;
  const uint32_t ranks_;

  // Operations in the order of their submission: [done_index_, arrive_index_) have pieces in flight.
  std::vector<uint32_t> queue_;
  std::atomic<uint64_t> submitted_{0};
  uint64_t arrive_index_ = 0, done_index_ = 0;

  // Piece numbers. make_ and done_ <= arrived_ <= done_ + kWindow.
  uint64_t arrived_ = 0;
  uint64_t make_ = 0;  // the first piece that this rank may have to make
  std::atomic<uint64_t> done_{0};
  std::array<Piece, kSlots> pieces_;

  std::atomic<uint64_t> wakes_{0};
  uint64_t wakes_seen_ = 0;  // at the start of progress()

  std::array<const std::byte*, kMaxRanks> sources_{};  // of the piece that is summed
  std::unique_ptr<std::byte[]> scratch_;               // partial sums of groups; null with one group
  std::optional<Mismatch> mismatch_;
  Counters counters_;
};

template <typename Sleeper>
void Stage::sleep(Sleeper sleeper) noexcept {
  Doorbell& bell = segment_.doorbell(rank_);
  const uint32_t seen = bell.word.load(std::memory_order_seq_cst);
  // A rank that completes a piece stores that, and then loads what this rank awaits. This rank stores what it
  // awaits, and then looks once more. All four are sequentially consistent, so one of the two sees the other.
  const uint64_t done = done_.load(std::memory_order_relaxed);
  const bool sums_itself = done < arrived_ && pieces_[done % kSlots].maker == kEveryone;
  const uint64_t make = sums_itself ? done : make_;
  bell.awaited_result.store(done < arrived_ ? done + 1 : 0, std::memory_order_seq_cst);
  bell.awaited_arrivals.store(make < arrived_ ? make + 1 : 0, std::memory_order_seq_cst);
  if (!has_work()) sleeper(bell.word, seen);
  bell.awaited_result.store(0, std::memory_order_relaxed);
  bell.awaited_arrivals.store(0, std::memory_order_relaxed);
}

template <typename Predicate>
uint32_t Stage::count_missing(Rank& first, Predicate pred) const noexcept {
  const uint64_t number = pieces_done();
  uint32_t count = 0;
  for (Rank rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_ || !pred(rank)) continue;
    const Arrival& arrival = segment_.arrival(static_cast<uint32_t>(number % kSlots), rank);
    const uint64_t next = arrival.next.load(std::memory_order_acquire);
    if (next <= number && count++ == 0) first = rank;
  }
  return count;
}

}  // namespace sluice::local
