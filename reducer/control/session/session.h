// Class Session is one session on this reducer: its ranks, their agreement, its lanes and its end.
//
//   kJoining -> kActive -> kEnding -> (freed)        kJoining -> kEnding if the join fails
//
// In kEnding every rank has been notified or has left, and the lanes close their connections. The session is
// freed when every lane has released it. A fault-tolerant session (protocol.md section 11) recovers from
// losses while it is kActive.
//
// Control thread only.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "blackbox/event_source.h"
#include "core/result.h"
#include "reducer/control/connection/connection.h"
#include "reducer/control/job_budgets.h"
#include "reducer/control/session/view_change.h"
#include "reducer/fair/fair_shares.h"
#include "reducer/lane/lane_messages.h"
#include "reducer/lane/lane_session.h"
#include "reducer/slots/session_plan.h"
#include "transport/path_monitor.h"
#include "transport/rdma/memory.h"
#include "wire/messages.h"

namespace sluice::reducer {

class ControlLoop;

class Session {
 public:
  // The first JOIN defines the session. Lane connection i is served by lane `first_lane` + i of the reducer.
  Session(ControlLoop& loop, const wire::Hello& hello, const wire::Join& join, uint32_t handle,
          uint32_t first_lane);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // Bytes that a session of this shape reserves: the formula of docs/guides/operate.md.
  [[nodiscard]] static uint64_t bytes_for(const wire::Hello& hello, const wire::Join& join) noexcept;

  // ---- session_join.cc: the join, up to the first COMMIT ----
  // The error if the connection belongs to another job than this session; empty if it may use the session.
  // Checked first, since a token opens only the sessions of its job.
  [[nodiscard]] std::optional<Error> check_job(const wire::Hello& hello) const;
  // The error if this JOIN disagrees with the session; empty if it agrees.
  [[nodiscard]] std::optional<Error> check_agreement(const wire::Hello& hello, const wire::Join& join,
                                                     const std::string& peer) const;
  [[nodiscard]] Status map_slots();  // kMemoryLimit if the address space is exhausted
  void hold(JobBudgets::Share memory, JobBudgets::Share lanes) noexcept {
    shares_ = {std::move(memory), std::move(lanes)};
  }
  // From now on the lanes of the session share the reducer's capacity under this account. After map_slots().
  void join_fair_pool(FairAccount& account);
  void add(const std::shared_ptr<Connection>& control, const wire::Hello& hello, const wire::Join& join);
  // The window W in slots, or why this lane connection is refused.
  [[nodiscard]] Result<uint32_t> admit_lane(const wire::Hello& hello, const wire::Attach& attach);
  void on_lane_attached(uint32_t rank, uint32_t lane, transport::tcp::Socket socket);
  void on_vote(Connection& from, uint32_t rank, const wire::Vote& vote);
  void on_commit(Connection& from, uint32_t rank, const wire::Commit& commit);

  // ---- session_leave.cc: ranks leave, the session completes ----
  void on_heartbeat(Connection& from, uint32_t rank, const wire::Heartbeat& beat);
  void on_leave(Connection& from, uint32_t rank, const wire::Leave& leave);

  // ---- session_recovery.cc: fault tolerance ----
  [[nodiscard]] bool is_fault_tolerant() const noexcept { return plan_.fault_tolerant; }
  [[nodiscard]] wire::SumOrder order() const noexcept { return plan_.order; }
  // The error if a control connection may not replace the rank's; empty if it may.
  [[nodiscard]] std::optional<Error> check_resume(const wire::Hello& hello, const wire::Attach& attach) const;
  void resume(const std::shared_ptr<Connection>& control, uint32_t rank);
  void on_suspect(Connection& from, uint32_t rank, const wire::Suspect& suspect);
  void on_view_known(Connection& from, uint32_t rank, const wire::ViewKnown& known);
  void on_rate_changes(Connection& from, uint32_t rank, const wire::RateChanges& changes);
  void on_view_answer(Connection& from, uint32_t rank, const wire::ViewAnswer& answer);
  // This process did not run for `time`, so messages of that time are still unread.
  void on_process_stall(Nanos time);
  // The reducer stops. Ends the session, unless its ranks can continue on other reducers: they find out by
  // themselves.
  void stop(Errc code, const std::string& text);

  // ---- session.cc: losses and the end ----
  void record_activity(uint32_t rank);
  void on_abort(Connection& from, uint32_t rank, const wire::Abort& abort);
  void on_control_lost(uint32_t rank, Errc reason);
  void on_lane_event(const LaneEvent& event);
  void tick(Nanos now);
  // When the next tick() is due, unless something happens before: 0 for the next pass of the control loop.
  // SessionRegistry::wake() says that something has.
  [[nodiscard]] Nanos next_tick() const;
  // Ends the session with this error on every rank.
  void fail(Errc code, uint32_t rank, const std::string& text);
  // Shortens the time that an ending session waits for its peers.
  void limit_linger(Nanos deadline) noexcept { close_deadline_ = std::min(close_deadline_, deadline); }

  [[nodiscard]] bool is_joining() const noexcept { return state_ == State::kJoining; }
  [[nodiscard]] bool is_ending() const noexcept { return state_ == State::kEnding; }
  // Every lane has released the session: it can be freed.
  [[nodiscard]] bool is_released() const noexcept { return is_ending() && lanes_released_ == lanes_.size(); }
  // Active, or its verdict is known. From then on a rank that joins cannot fail the session.
  [[nodiscard]] bool is_decided() const noexcept { return state_ == State::kActive || has_verdict_; }
  // The arbiter's commit; nothing elsewhere, and before.
  [[nodiscard]] std::optional<wire::Verdict> verdict() const;
  [[nodiscard]] bool is_completed() const noexcept { return is_completed_; }
  [[nodiscard]] bool has_moved() const noexcept { return has_moved_; }  // continues on other reducers
  [[nodiscard]] const SessionId& id() const noexcept { return id_; }
  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  [[nodiscard]] const std::string& tenant() const noexcept { return tenant_; }
  [[nodiscard]] uint64_t served_bytes() const noexcept;
  [[nodiscard]] const FairShares::Member& share() const noexcept { return share_; }
  [[nodiscard]] uint32_t handle() const noexcept { return plan_.handle; }
  [[nodiscard]] uint64_t reserved_bytes() const noexcept { return reserved_; }
  // The memory that the queue pair of an admitted lane connection uses.
  [[nodiscard]] transport::rdma::PairMemory pair_memory(uint32_t rank, uint32_t lane) const {
    return {.memory = memory_[lane].memory,
            .own_buffers = lanes_[lane]->slots_of(rank),
            .owner = lanes_[lane]->memory_owner()};
  }
  [[nodiscard]] uint32_t rank_count() const noexcept { return plan_.ranks; }
  [[nodiscard]] const char* state_name() const noexcept;
  [[nodiscard]] std::vector<uint32_t> joined_ranks() const;
  // The ranks that the longest waiting lane waits for.
  [[nodiscard]] LaneSession::MissingRanks missing() const;
  // Total time that the other ranks waited for this one, on the lane where that was longest.
  [[nodiscard]] Nanos waited_for(uint32_t rank) const noexcept;
  // Whether contributions are scanned.
  [[nodiscard]] bool has_health() const noexcept { return plan_.health && !lanes_.empty(); }
  struct HealthOfRank {
    uint64_t non_finite = 0;                                   // values, since the session began
    std::array<uint64_t, wire::kFindingKindCount> findings{};  // chunks, by kind
    // Of the last operation, as far as this reducer has it; the last two from a sample.
    double largest = 0, norm = 0, zero_fraction = 0;
  };
  // Requires has_health().
  [[nodiscard]] HealthOfRank health_of(uint32_t rank) const noexcept;
  // The rank's lane connections: packets of both directions, and the longest stall at either end.
  // session_paths.cc
  [[nodiscard]] transport::PathReport path_of(uint32_t rank) const noexcept;
  [[nodiscard]] uint16_t history_version() const noexcept { return view_.history().version(); }
  [[nodiscard]] std::vector<uint32_t> absent_ranks() const;  // ranks that lack a connection

 private:
  enum class State : uint8_t { kJoining, kActive, kEnding };
  struct RankState {
    std::shared_ptr<Connection> control;
    std::string peer;
    uint64_t view_hash = 0;       // of JOIN; every ATTACH must carry it
    uint64_t lanes_admitted = 0;  // bit per lane connection
    bool has_voted = false;
    bool has_committed = false;
    bool has_left = false;
    bool leave_acked = false;
    uint64_t finished = 0;  // first chunk without a result, as last reported
    Nanos last_heard = 0;
    transport::PathReport reported_path;  // by its heartbeats: packets that it sent
    Nanos leave_deadline = 0;
    Nanos lane_closed_at = 0;  // the control connection may still deliver the reason
    Errc lost_reason = Errc::kOk;
    bool is_excluded = false;     // its connections are refused
    Nanos control_lost_at = 0;    // of a fault-tolerant session; 0: connected
    bool may_be_unaware = false;  // an end of its connections did not come from its side
    Nanos reported_absence = 0;   // absent_since() of the last log line
  };

  // ---- session.cc ----
  // No rank lacks a connection, leaves or has another change under way that only the clock ends.
  [[nodiscard]] bool is_quiet() const;
  void check_losses(uint32_t rank, Nanos now);
  void log_findings(Nanos now);  // session_health.cc
  void write_audit_line(std::string_view result) const;
  // Begins with the name of the session, and is bounded for each job.
  void log_info(const std::string& text) const;
  void log_warning(const std::string& text) const;
  void on_rank_lost(uint32_t rank, Errc reason, const char* connection);
  void record_lost_lane(const LaneEvent& event) const noexcept;
  void record_late_rank() noexcept;
  // session_paths.cc
  void add_reported_path(uint32_t rank, const wire::Heartbeat& beat) noexcept;
  [[nodiscard]] transport::PathReport sent_path(uint32_t rank) const noexcept;
  void check_paths(Nanos now);
  // Records the end of the session and has the black box written.
  void record_failure(Errc code, uint32_t rank, const std::string& text) noexcept;
  void send_heartbeats(Nanos now);
  void record_heartbeat(uint32_t rank, uint64_t count) const noexcept;
  [[nodiscard]] wire::Heartbeat next_heartbeat();
  void send_heartbeat(uint32_t rank, wire::Heartbeat& beat) const;
  void send_to_lanes(LaneCommand::Kind kind, Rank rank = 0);
  void begin_ending(const std::vector<std::byte>& abort_body);
  template <typename M>
  void send_all(const M& message) {
    for (const RankState& r : ranks_) {
      if (r.control) r.control->send(message);
    }
  }
  [[nodiscard]] std::string name(uint32_t rank) const;  // "rank 3 (10.0.0.3:50112)"
  // "session 01234567": not the whole id, which is a secret.
  [[nodiscard]] std::string log_name() const;

  // ---- session_join.cc ----
  void commit_join();
  void refuse_join(Errc code, uint32_t rank, const std::string& text);
  [[nodiscard]] Nanos join_deadline_for(const wire::Join& join) const noexcept;
  void on_join_timeout();
  // True at the first reducer of a starting session: it counts the ranks' votes and decides. No votes are
  // cast when ranks join a running session.
  [[nodiscard]] bool decides_join() const noexcept {
    return agreed_.reducer_index == 0 && !joined_running_session_;
  }
  [[nodiscard]] std::optional<Error> check_kind(const wire::Hello& hello, const std::string& rank) const;

  // ---- session_leave.cc ----
  void begin_leave(uint32_t rank);
  [[nodiscard]] bool has_pending_leave() const;
  void acknowledge_leaves();
  void acknowledge_leave(uint32_t rank);
  void request_progress();
  void complete_if_all_left();

  // ---- session_recovery.cc ----
  [[nodiscard]] bool can_recover() const noexcept { return plan_.fault_tolerant && state_ == State::kActive; }
  void start_recovery();
  // When the rank lost a connection; 0: it has all of them.
  [[nodiscard]] Nanos absent_since(uint32_t rank) const;
  [[nodiscard]] bool has_connection(uint32_t rank) const;
  // All connections of the rank were closed or reset from its side, and it has not returned in time.
  [[nodiscard]] bool is_gone(uint32_t rank) const;
  bool end_if_rest_is_gone();
  void log_absence(uint32_t rank);
  void check_absences(Nanos now);
  void close_silent_ranks(Nanos now);
  [[nodiscard]] std::optional<Error> check_excluded(uint32_t rank) const;
  void exclude_rank(uint32_t rank, Errc reason);
  void abandon(const std::string& why);
  void end_if_moved();
  void close_rank(uint32_t rank, Errc reason);
  void apply(ViewChange::Step step, uint32_t rank, const std::string& cause);
  void announce_drain();
  void send_drain_notice(uint32_t rank);
  void send_query(uint32_t rank);
  template <typename M>
  void send_to(uint32_t rank, const M& message);
  template <typename M>
  void broadcast(const M& message);

  ControlLoop& loop_;
  const SessionId id_;
  const blackbox::EventSource blackbox_;
  const std::string job_;
  const std::string tenant_;
  const wire::Join agreed_;
  const uint32_t first_rank_;
  const bool joined_running_session_;  // its ranks added this reducer while the session ran elsewhere
  SessionPlan plan_;
  const uint32_t first_lane_;
  const uint64_t reserved_;
  const Nanos first_join_at_;
  Nanos join_deadline_;  // for JOINs and, once there is a verdict, for COMMITs
  State state_ = State::kJoining;
  bool has_verdict_ = false;
  bool is_completed_ = false;
  bool has_moved_ = false;
  uint64_t incarnation_ = 0;
  Nanos next_heartbeat_at_ = 0;
  Nanos close_deadline_ = 0;
  uint64_t heartbeat_count_ = 0;
  std::vector<RankState> ranks_;
  std::vector<std::unique_ptr<LaneSession>> lanes_;
  struct LoggedFindings {
    uint64_t count = 0;
    Nanos at = 0;
  };
  transport::PathWatch path_watch_;              // of all ranks together
  std::vector<LoggedFindings> logged_findings_;  // by rank and kind
  uint32_t late_rank_ = wire::kNoRank;           // the last one recorded
  // Memory of a lane that RDMA devices read. The ranks' slots belong to their queue pairs.
  struct LaneMemory {
    std::shared_ptr<transport::rdma::Memory> memory;
    transport::rdma::ScopedRegistration results;
  };
  std::vector<LaneMemory> memory_;
  size_t lanes_released_ = 0;
  FairShares::Member share_;
  std::array<JobBudgets::Share, 2> shares_;  // of its job's memory and lane connections
  ViewChange view_;
  bool drain_announced_ = false;
  Nanos stalled_until_ = 0;  // messages before this time may be unread
  bool removal_logged_ = false;
};

}  // namespace sluice::reducer
