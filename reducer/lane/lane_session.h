// Class LaneSession runs one session on one lane: the ranks' connections, the slots, the folds and the
// results.
//
// Lane thread only, except where a section names another thread.
//
// In a fault-tolerant session (protocol.md section 11) broken connections are resumed and views change. Each
// rank announces the next view on its own connection. The first announcement moves the slots to that view;
// contributions of the other ranks are dropped until they follow.
//
// Life:
//   from               event    to        action
//   kRunning           fail()   kFailed   folds stop; the failure is reported
//   kRunning, kFailed  end()    kEnding   folds stop, ABORT is sent, the connections are shut down;
//                                         kReleased is reported when all have closed
// Any other event has no effect. The control loop answers a failure with kEnd.
//
// Folds:
//   kNone              task due          kListed   joins LaneWork::folds
//   kListed            may fold          kFolding  continues at the lane's virtual time if it is ahead
//   kFolding           held or blocked   kListed
//   kListed, kFolding  no task left      kNone     leaves LaneWork::folds
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/spsc_ring.h"
#include "reducer/fair/meter.h"
#include "reducer/kernels/fold.h"
#include "reducer/lane/health_monitor.h"
#include "reducer/lane/lane_counters.h"
#include "reducer/lane/lane_messages.h"
#include "reducer/lane/lane_work.h"
#include "reducer/lane/operation_timer.h"
#include "reducer/lane/rank_connection.h"
#include "reducer/slots/chunk_slot.h"
#include "reducer/slots/slot_arena.h"
#include "transport/tcp/socket.h"
#include "wire/messages.h"

namespace sluice::reducer {

class LaneSession {
 public:
  // ---- control thread ----
  // Called before the lane knows the session.
  LaneSession(const SessionPlan& plan, SlotArena arena);
  LaneSession(const LaneSession&) = delete;
  LaneSession& operator=(const LaneSession&) = delete;

  [[nodiscard]] const SessionPlan& plan() const noexcept { return plan_; }
  // ---- any thread ----
  // The memory that results are sent from, and the slots that the rank's device may write to.
  [[nodiscard]] std::span<std::byte> result_memory() const noexcept { return arena_.results(); }
  [[nodiscard]] std::span<std::byte> slots_of(Rank rank) const noexcept { return arena_.contributions(rank); }
  // Keeps both mapped.
  [[nodiscard]] std::shared_ptr<const void> memory_owner() const noexcept { return owned_arena_; }

  // ---- control thread ----
  // The ABORT that end() sends. Set before kEnd is pushed: the ring's release store orders it.
  void set_end_message(std::vector<std::byte> abort_body) { abort_body_ = std::move(abort_body); }

  // ---- lane thread ----
  // `place`: its number among the sessions of the lane.
  void enter(LaneWork& work, LaneCounters& counters, size_t place) noexcept {
    work_ = &work, counters_ = &counters, place_ = place;
  }
  [[nodiscard]] bool is_in_lane() const noexcept { return work_ != nullptr; }
  [[nodiscard]] size_t place() const noexcept { return place_; }
  void move_to(size_t place) noexcept { place_ = place; }
  [[nodiscard]] RankConnection& connection(Rank rank) noexcept { return *connections_[rank]; }
  void attach(Rank rank, transport::Endpoint& ep) noexcept;
  // Closes the rank's open connection in favor of `socket` and takes the socket. False: there is no open
  // connection and the caller attaches the socket now.
  [[nodiscard]] bool replace(Rank rank, transport::tcp::Socket& socket) noexcept;
  struct PendingConnection {
    Rank rank;
    transport::tcp::Socket socket;  // attached by the caller
  };
  // True if there is a socket whose predecessor has closed. take_pending_connection() returns one of them.
  [[nodiscard]] bool has_pending_connection() const noexcept { return pending_connections_ != 0; }
  [[nodiscard]] PendingConnection take_pending_connection() noexcept;
  // No endpoint could be made of the rank's socket: reported like a connection that closed at once.
  void attach_failed(Rank rank) noexcept;
  void rank_left(Rank rank) noexcept;
  void close_rank(Rank rank) noexcept;
  // Sends the ABORT, closes the connections after it and waits until the peers have closed too.
  void end() noexcept;

  // Folds up to `output_budget` bytes of results or partial sums and puts complete results. Returns the bytes
  // of output.
  size_t fold(size_t output_budget) noexcept;
  // False while results of an older view, which occupy the same memory, are still being sent.
  [[nodiscard]] bool has_folds() const noexcept { return has_tasks() && stale_puts_ == 0; }
  [[nodiscard]] bool has_tasks() const noexcept { return task_head_ != task_tail_ && !ended(); }

  // True if the fair shares hold the next fold back; a started fold continues. Records the answer in the
  // meter. A session that was held re-enters at the lane's virtual time: the shares already account for the
  // delay.
  [[nodiscard]] bool update_held() noexcept {
    const bool held = task_element_ == 0 && !meter_.may_serve();
    meter_.set_held(held);
    if (held) folds_ = Folds::kListed;
    return held;
  }
  // Virtual time of this session's folds on this lane: bytes read, divided by the weight. A session that had
  // no folds continues at the lane's virtual time.
  [[nodiscard]] double virtual_time() const noexcept { return virtual_time_; }
  void begin_folds(double lane_time) noexcept {
    if (folds_ != Folds::kFolding) virtual_time_ = std::max(virtual_time_, lane_time);
    folds_ = Folds::kFolding;
  }
  // Results of an older view block the folds.
  void stop_folding() noexcept {
    folds_ = Folds::kListed;
    meter_.set_held(false);
  }
  // The lane has taken it out of LaneWork::folds.
  void left_folds() noexcept {
    folds_ = Folds::kNone;
    meter_.set_held(false);
  }

  // Pushes the due events while the ring has room. True after kReleased: the control loop may have freed the
  // session, so the caller must not touch it.
  [[nodiscard]] bool report_events(SpscRing<LaneEvent>& events) noexcept;
  [[nodiscard]] bool has_events() const noexcept { return events_due_; }  // it is in LaneWork::events

  // Every 100 ms, or kIdleTick while nothing moves: publishes the counters and the ranks that the oldest
  // unfinished chunk lacks. Closes connections that are late with their first frame. Once a second also
  // samples what the network does to each connection that moves something.
  static constexpr Nanos kIdleTick = kSecond;
  void tick(Nanos frame_timeout) noexcept;
  // The next pass ticks the session.
  void leave_idle() noexcept {
    is_idle_ = false;
    work_->tick_due[place_] = 0;
  }

  // ---- any thread ----
  // When the rank lost its connection; 0: the rank is connected, or never was.
  [[nodiscard]] Nanos down_since(Rank rank) const noexcept {
    return connections_[rank]->down_since_.load(std::memory_order_relaxed);
  }
  // After kEnd: stop waiting for peers. A flag and not a command, since the lane may have released the
  // session.
  void close_now() noexcept { close_now_.store(true, std::memory_order_relaxed); }

  // The rank's lane connection, as this end sees it.
  [[nodiscard]] transport::PathReport path(Rank rank, Nanos now) const noexcept {
    return connections_[rank]->path_.report(now);
  }

  struct MissingRanks {
    Nanos since = 0;  // first contribution to the oldest unfinished chunk; 0: no rank is missing
    uint32_t count = 0;
    std::array<uint32_t, wire::kMaxNamedRanks> ranks{};
  };
  [[nodiscard]] MissingRanks missing() const noexcept;
  // Total time that this lane waited for the rank while other ranks had contributed.
  //
  // The rank whose contribution completes a chunk is charged the time since the first contribution, except
  // time charged for an earlier chunk. So concurrent waits count once, and the sum over the ranks is at most
  // the elapsed time.
  [[nodiscard]] Nanos waited_for(Rank rank) const noexcept {
    return static_cast<Nanos>(waited_for_[rank].get());
  }
  [[nodiscard]] Meter& meter() noexcept { return meter_; }
  // Null unless contributions are scanned.
  [[nodiscard]] const HealthMonitor* health() const noexcept { return health_.get(); }

 private:
  friend class RankConnection;
  // Cookie of control frames. Results use the version of their view as the cookie.
  static constexpr transport::Cookie kControlCookie = ~transport::Cookie{0};

  enum class Life : uint8_t { kRunning, kFailed, kEnding };
  enum class Folds : uint8_t { kNone, kListed, kFolding };

  struct FoldTask {
    uint32_t slot = 0;
    uint32_t group = 0;  // groups_: the final fold over the partial sums
  };

  // ---- lane_session_contribution.cc: called by RankConnection ----
  // True if the slot of `sequence` is granted, which is so once the slot's previous result was put. The rank
  // may have that result before the transport reports it as sent.
  [[nodiscard]] bool may_contribute(const RankConnection& conn, uint64_t sequence) const noexcept;
  [[nodiscard]] std::byte* contribution_slot(const RankConnection& conn, uint64_t sequence) const noexcept;
  Status admit(RankConnection& conn, const wire::FrameHeader& h, std::span<const std::byte> extensions,
               std::byte*& slot_memory) noexcept;
  // Expands a sparse payload in place and checks the content of blocks. Then `header` describes the payload.
  Status decode(wire::FrameHeader& header, std::span<const std::byte> extensions,
                std::byte* payload) noexcept;
  void on_contribution(RankConnection& conn, const wire::FrameHeader& h,
                       std::span<const std::byte> extensions) noexcept;
  void on_result_sent(RankConnection& conn, transport::Cookie view) noexcept;
  void on_connection_closed(RankConnection& conn, Errc reason) noexcept;
  Status commit(RankConnection& conn, std::span<const std::byte> body) noexcept;
  [[nodiscard]] bool is_other_incarnation(uint64_t incarnation) const noexcept;

  // ---- lane_session_resume.cc ----
  Status resume(RankConnection& conn, std::span<const std::byte> body) noexcept;
  Status view_commit(RankConnection& conn, std::span<const std::byte> body) noexcept;
  Status enter_view(RankConnection& conn, const LaneView& to) noexcept;
  void switch_to_view(const LaneView& to) noexcept;
  [[nodiscard]] bool can_resume(const RankConnection& conn, uint64_t results_held) const noexcept;
  [[nodiscard]] bool has_completed_beyond(uint64_t next_contribution) const noexcept;
  void send_resume_ack(RankConnection& conn) noexcept;
  void resend_results(RankConnection& conn) noexcept;

  // ---- lane_session_leave.cc ----
  void complete_without_leavers() noexcept;
  bool complete_without_leavers(uint32_t slot) noexcept;

  // True if results of the session's view are put on this connection.
  [[nodiscard]] bool receives_results(const RankConnection& conn) const noexcept {
    return conn.state_ == RankConnection::State::kCommitted && conn.view_.version == view_.version;
  }
  [[nodiscard]] bool has_contributed(const RankConnection& conn, uint64_t sequence) const noexcept {
    return conn.view_.version == view_.version && conn.next_contribution_ > sequence;
  }
  [[nodiscard]] uint32_t ranks_of_group(uint32_t group) const noexcept;
  bool publish_missing() noexcept;  // true: a rank is missing
  void fail(Errc code, Rank rank, const char* format, ...) noexcept __attribute__((format(printf, 4, 5)));
  void fail_mismatch(const RankConnection& conn, const wire::FrameHeader& h, uint64_t count,
                     const std::optional<wire::Caller>& caller, const ChunkSlot& c,
                     const char* field) noexcept;
  void fail_mismatch_of_callers(const RankConnection& conn, uint64_t count, const wire::Caller& caller,
                                const ChunkSlot& c) noexcept;
  // ---- lane_session_fold.cc ----
  void push_task(uint32_t slot, uint32_t group) noexcept;
  size_t fold_slice(const FoldTask& task, size_t output_budget, bool& complete) noexcept;
  void fold_and_scan(const FoldTask& task, kernels::FoldFunction function, size_t sources, size_t count,
                     size_t out_size, std::byte* out) noexcept;
  void add_finding(uint32_t slot) noexcept;
  void task_complete(const FoldTask& task) noexcept;
  void put_result(uint32_t slot) noexcept;
  void encode_result(SentResult& result) noexcept;
  size_t copy_kept_slice(const FoldTask& task, size_t output_budget, bool& complete) noexcept;
  bool put(RankConnection& conn, const wire::FrameHeader& header, const SentResult& result) noexcept;
  [[nodiscard]] bool detect_packet_loss() noexcept;
  [[nodiscard]] bool ended() const noexcept { return life_ != Life::kRunning; }
  [[nodiscard]] Nanos now() const noexcept { return work_->now; }
  void note_events() noexcept {
    if (!std::exchange(events_due_, true)) work_->events.push_back(this);
  }

  const SessionPlan plan_;
  const uint32_t groups_;
  const std::shared_ptr<const SlotArena> owned_arena_;
  const SlotArena& arena_;
  std::vector<std::unique_ptr<RankConnection>> connections_;
  std::vector<ChunkSlot> chunks_;
  std::vector<SentResult> sent_results_;  // by slot, of the current view
  std::vector<Counter> waited_for_;       // by rank, nanoseconds
  Nanos charged_until_ = 0;               // waits until then are charged
  OperationTimer operation_timer_;
  const std::unique_ptr<HealthMonitor> health_;
  std::vector<const std::byte*> sources_;  // of the current fold; allocated once
  LaneCounters* counters_ = nullptr;
  LaneWork* work_ = nullptr;
  size_t place_ = 0;
  bool is_idle_ = false;  // the last tick found that nothing moves

  // Tasks in the order they became due: at most one per (slot, group) and one final fold per slot.
  std::vector<FoldTask> tasks_;
  uint64_t task_head_ = 0;
  uint64_t task_tail_ = 0;
  size_t task_element_ = 0;  // elements of the head task that are folded
  uint32_t task_crc_ = 0;
  Meter meter_;
  double virtual_time_ = 0;
  Folds folds_ = Folds::kNone;

  bool losses_to_report_ = false;  // with the next result
  Nanos next_path_sample_ = 0;

  LaneView view_;             // of the rank that is furthest ahead
  uint64_t stale_puts_ = 0;   // results of older views that the transport still reads from the slots
  uint64_t next_result_ = 0;  // sequence of the oldest unfinished chunk
  uint64_t incarnation_ = 0;  // 0 until the first COMMIT
  uint64_t leaver_limit_ = ~uint64_t{0};  // from this sequence on, a rank that left does not contribute
  uint32_t open_connections_ = 0;
  uint32_t pending_connections_ = 0;
  bool some_rank_has_left_ = false;  // in any view
  Life life_ = Life::kRunning;
  bool events_due_ = false;
  LaneEvent failure_;  // to report; kNone: nothing
  std::vector<std::byte> abort_body_;

  std::atomic<bool> close_now_{false};
  std::atomic<Nanos> missing_since_{0};
  std::atomic<uint32_t> missing_count_{0};
  std::array<std::atomic<uint32_t>, wire::kMaxNamedRanks> missing_ranks_{};
};

}  // namespace sluice::reducer
