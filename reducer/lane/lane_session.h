// One session on one lane: n ranks' connections, W slots, the folds. Everything but the marked accessors is
// the lane thread's.
//
// In a surviving session (PROTOCOL.md section 11) connections break and are resumed, and ranks move the
// session to the next view, each by its own connection: the first one takes the slots along, the others are
// behind until they follow.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/spsc_ring.h"
#include "reducer/fair/meter.h"
#include "reducer/kernels/fold.h"
#include "reducer/lane/lane_counters.h"
#include "reducer/lane/lane_messages.h"
#include "reducer/lane/operation_clock.h"
#include "reducer/lane/rank_link.h"
#include "reducer/slots/chunk_slot.h"
#include "reducer/slots/slot_arena.h"
#include "transport/tcp/socket.h"
#include "wire/messages.h"

namespace sluice::reducer {

class LaneSession {
 public:
  static constexpr size_t kMaxMissing = wire::kMaxNamedRanks;

  // Conductor thread, before the lane knows of it.
  LaneSession(const SessionPlan& plan, SlotArena arena);
  LaneSession(const LaneSession&) = delete;
  LaneSession& operator=(const LaneSession&) = delete;

  [[nodiscard]] const SessionPlan& plan() const noexcept { return plan_; }
  // What results are sent from, and the slots that a rank's device may write to by itself. Any thread.
  [[nodiscard]] std::span<std::byte> result_memory() const noexcept { return arena_.results(); }
  [[nodiscard]] std::span<std::byte> slots_of(Rank rank) const noexcept { return arena_.contributions(rank); }
  // Keeps both mapped.
  [[nodiscard]] std::shared_ptr<const void> memory_owner() const noexcept { return owned_arena_; }

  // The ABORT to send when the session is ended; set by the conductor before it gives kEnd (the ring's
  // release orders it).
  void set_ending(std::vector<std::byte> abort_body) { abort_body_ = std::move(abort_body); }

  // ---- lane thread ----
  void enter(LaneCounters& counters) noexcept { counters_ = &counters; }
  [[nodiscard]] RankLink& link(Rank rank) noexcept { return *links_[rank]; }
  void attach(Rank rank, transport::Endpoint& ep) noexcept;
  // A connection of a rank that has one, which is closed for it. False: the rank has none, attach it now.
  // Takes `socket` when true.
  [[nodiscard]] bool replace(Rank rank, transport::tcp::Socket& socket) noexcept;
  struct Takeover {
    Rank rank;
    transport::tcp::Socket socket;  // the caller's to attach
  };
  // The next connection whose predecessor is gone.
  [[nodiscard]] std::optional<Takeover> next_takeover() noexcept;
  // The rank's socket could not be taken over: as if its connection had closed at once.
  void never_attached(Rank rank) noexcept;
  void rank_left(Rank rank) noexcept;
  void close_rank(Rank rank) noexcept;
  // Sends the ABORT, closes after it, and waits for the peers to close too.
  void end() noexcept;

  // Folds up to `output_budget` bytes of result or partial sum; puts results that are complete. Returns bytes
  // of output.
  size_t fold(size_t output_budget) noexcept;
  // False too while they are held back by results of an old view.
  [[nodiscard]] bool has_folds() const noexcept {
    return task_head_ != task_tail_ && old_puts_ == 0 && !ended();
  }

  // What may begin now: not what other sessions' shares hold back. What has begun goes on. Who was held comes
  // back where the lane is, like one that had nothing: the shares have settled that already.
  [[nodiscard]] bool may_fold() noexcept {
    const bool may = task_element_ != 0 || meter_.may_serve();
    meter_.set_held(!may);
    if (!may) folding_ = false;
    return may;
  }
  // Virtual time of its folds on this lane: bytes that were read for them, over its weight. Who comes back
  // from having none starts where the lane is.
  [[nodiscard]] double fold_time() const noexcept { return fold_time_; }
  void begin_folding(double lane_time) noexcept {
    if (!folding_) fold_time_ = std::max(fold_time_, lane_time);
    folding_ = true;
  }
  void rest_folding() noexcept {
    folding_ = false;
    meter_.set_held(false);
  }

  // Pushes every event that is due, as far as there is room. True when that was the last event of all: the
  // conductor may have freed the session by then, so nothing of it may be touched.
  [[nodiscard]] bool report(SpscRing<LaneEvent>& events) noexcept;
  [[nodiscard]] bool report_due() const noexcept { return report_due_; }

  // Every 100 ms: publishes which ranks the oldest unfinished chunk waits for, and counters; closes what was
  // asked to be closed.
  void tick(Nanos frame_timeout) noexcept;

  void set_now(Nanos now) noexcept { now_ = now; }

  // ---- any thread ----
  // Since when the rank has no connection that it once had; 0: it has one, or never had.
  [[nodiscard]] Nanos down_since(Rank rank) const noexcept {
    return links_[rank]->down_since_.load(std::memory_order_relaxed);
  }
  // After kEnd: do not wait for peers any longer. A flag rather than a command, since the lane may be done
  // with this session.
  void close_now() noexcept { close_now_.store(true, std::memory_order_relaxed); }

  struct Missing {
    Nanos since = 0;  // first contribution to the oldest unfinished chunk; 0: nothing waits
    uint32_t count = 0;
    std::array<uint32_t, kMaxMissing> ranks{};
  };
  [[nodiscard]] Missing missing() const noexcept;
  // How long this lane had something of the others and waited for this rank, in all: the rank whose
  // contribution completes a chunk is charged the time since the first came, but for what was charged with a
  // chunk before it. So it is time, not chunks times time, and the sum over the ranks is no more than has
  // passed. Of several that are late alike each is charged where it is last.
  [[nodiscard]] Nanos waited_for(Rank rank) const noexcept {
    return static_cast<Nanos>(waited_for_[rank].get());
  }
  [[nodiscard]] Meter& meter() noexcept { return meter_; }

 private:
  friend class RankLink;
  // Results are put with the version of their view.
  static constexpr transport::Cookie kControlCookie = ~transport::Cookie{0};

  struct FoldTask {
    uint32_t slot = 0;
    uint32_t group = 0;  // group_count(): the finishing fold over partial sums
  };

  // RankLink's side (contribution.cc)
  // The slot of that contribution is granted: the result before it in the same slot was put. The rank may
  // know that before we know that it was sent.
  [[nodiscard]] bool may_contribute(const RankLink& link, uint64_t sequence) const noexcept;
  [[nodiscard]] std::byte* place_of(const RankLink& link, uint64_t sequence) const noexcept;
  Status admit(RankLink& link, const wire::FrameHeader& h, std::byte*& place) noexcept;
  void contributed(RankLink& link, const wire::FrameHeader& h,
                   std::span<const std::byte> extensions) noexcept;
  void result_sent(RankLink& link, transport::Cookie view) noexcept;
  void link_closed(RankLink& link, Errc reason) noexcept;
  Status commit(RankLink& link, std::span<const std::byte> body) noexcept;
  [[nodiscard]] bool other_incarnation(uint64_t told) const noexcept;

  // resume.cc
  Status resume(RankLink& link, std::span<const std::byte> body) noexcept;
  Status view_commit(RankLink& link, std::span<const std::byte> body) noexcept;
  Status enter_view(RankLink& link, const LaneView& to) noexcept;
  void move_to(const LaneView& to) noexcept;
  [[nodiscard]] bool can_resume(const RankLink& link, uint64_t results_held) const noexcept;
  [[nodiscard]] bool passed_over(uint64_t next_contribution) const noexcept;
  void acknowledge(RankLink& link) noexcept;
  void put_again(RankLink& link) noexcept;

  // leave.cc
  void complete_without_leavers() noexcept;
  bool complete_without_leavers(uint32_t slot) noexcept;

  // The link's connection is where results of the session's view go.
  [[nodiscard]] bool takes_results(const RankLink& link) const noexcept {
    return link.state_ == RankLink::State::kCommitted && link.view_.version == view_.version;
  }
  [[nodiscard]] bool has_contributed(const RankLink& link, uint64_t sequence) const noexcept {
    return link.view_.version == view_.version && link.next_contribution_ > sequence;
  }
  [[nodiscard]] uint32_t ranks_of_group(uint32_t group) const noexcept;
  void publish_missing() noexcept;
  void fail(Errc code, Rank rank, const char* format, ...) noexcept __attribute__((format(printf, 4, 5)));
  void fail_mismatch(const RankLink& link, const wire::FrameHeader& h, uint64_t count, const ChunkSlot& c,
                     const char* field) noexcept;
  void push_task(uint32_t slot, uint32_t group) noexcept;
  size_t fold_piece(const FoldTask& task, size_t output_budget, bool& complete) noexcept;
  void task_complete(const FoldTask& task) noexcept;
  void put_result(uint32_t slot) noexcept;
  size_t copy_kept_piece(const FoldTask& task, size_t output_budget, bool& complete) noexcept;
  bool put(RankLink& link, const wire::FrameHeader& header, const PutResult& result) noexcept;
  [[nodiscard]] bool lost_packets() noexcept;
  [[nodiscard]] bool ended() const noexcept { return failed_ || ending_; }

  const SessionPlan plan_;
  const uint32_t groups_;
  const std::shared_ptr<const SlotArena> owned_arena_;
  const SlotArena& arena_;
  std::vector<std::unique_ptr<RankLink>> links_;
  std::vector<ChunkSlot> chunks_;
  std::vector<PutResult> put_results_;  // per slot, of the present view
  std::vector<Counter> waited_for_;     // by rank, nanoseconds
  Nanos waited_until_ = 0;              // time that has been charged
  OperationClock operation_;
  std::vector<const std::byte*> sources_;  // scratch of a fold, sized once
  LaneCounters* counters_ = nullptr;
  Nanos now_ = 0;

  // Tasks in the order they became due. At most one per (slot, group) and one finish per slot.
  std::vector<FoldTask> tasks_;
  uint64_t task_head_ = 0;
  uint64_t task_tail_ = 0;
  size_t task_element_ = 0;  // elements of the head task already folded
  uint32_t task_crc_ = 0;
  Meter meter_;
  double fold_time_ = 0;
  bool folding_ = false;  // has had tasks since fold_time_ was set

  bool tell_losses_ = false;  // in the next result

  LaneView view_;             // of the rank that is furthest
  uint64_t old_puts_ = 0;     // of results of older views, not given back: their slots are not ours yet
  uint64_t next_result_ = 0;  // sequence of the oldest unfinished chunk
  uint64_t incarnation_ = 0;  // 0 until the first COMMIT
  uint64_t leaver_limit_ = ~uint64_t{0};  // sequences from here on lack a rank that left
  uint32_t open_links_ = 0;
  uint32_t takeovers_due_ = 0;
  bool leaves_said_ = false;  // by any rank, ever
  bool failed_ = false;
  bool ending_ = false;
  bool report_due_ = false;
  bool failed_reported_ = false;
  LaneEvent failure_;
  std::vector<std::byte> abort_body_;

  std::atomic<bool> close_now_{false};
  std::atomic<Nanos> missing_since_{0};
  std::atomic<uint32_t> missing_count_{0};
  std::array<std::atomic<uint32_t>, kMaxMissing> missing_ranks_{};
};

}  // namespace sluice::reducer
