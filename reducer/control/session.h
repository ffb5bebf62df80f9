// One session at this reducer: who has joined, what they agreed on, the vote, the lanes' part of it, its end.
// Conductor thread only.
//
//   kJoining -> kActive -> kEnding -> (freed)        kJoining -> kEnding when the join fails
//
// kEnding: every rank has been told (or has left), the lanes are closing; freed when each lane has let go.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "reducer/control/connection.h"
#include "reducer/lane/lane_messages.h"
#include "reducer/lane/lane_session.h"
#include "reducer/slots/session_plan.h"
#include "wire/messages.h"

namespace sluice::reducer {

class Conductor;

class Session {
 public:
  // What the first JOIN fixed. `first_lane`: which of the reducer's lanes serves lane connection 0; the
  // others follow.
  Session(Conductor& conductor, const wire::Hello& hello, const wire::Join& join, uint32_t handle,
          uint32_t first_lane);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Bytes a session of this shape reserves here: the formula of docs/operations.md.
  [[nodiscard]] static uint64_t bytes_for(uint32_t ranks, const wire::Join& join) noexcept;

  // ---- join ----
  // Why a connection of this job is none of the session's; nothing when it is. A token opens the sessions of
  // its own job only, so this comes before everything else that is said about the session.
  [[nodiscard]] std::optional<Error> foreign_job(const wire::Hello& hello) const;
  // Why this JOIN can't be part of the session; nothing when it can.
  [[nodiscard]] std::optional<Error> difference(const wire::Hello& hello, const wire::Join& join,
                                                const std::string& peer) const;
  [[nodiscard]] Status map_slots();  // kMemoryLimit when the system has no address space
  void add(const std::shared_ptr<Connection>& control, const wire::Hello& hello, const wire::Join& join);
  // W, or why this lane connection is refused.
  [[nodiscard]] Result<uint32_t> admit_lane(const wire::Hello& hello, const wire::Attach& attach);
  void lane_attached(uint32_t rank, uint32_t lane, int fd);

  // ---- from control connections ----
  void heard(uint32_t rank);
  void on_vote(Connection& from, uint32_t rank, const wire::Vote& vote);
  void on_commit(Connection& from, uint32_t rank, uint64_t incarnation);
  void on_leave(Connection& from, uint32_t rank);
  void on_abort(uint32_t rank, const wire::Abort& abort);
  void control_lost(uint32_t rank, Errc reason);

  // ---- from lanes and the clock ----
  void on_event(const LaneEvent& event);
  void tick(Nanos now);

  // Of a session that is ending: wait for its peers no longer than this.
  void end_by(Nanos deadline) noexcept { close_deadline_ = std::min(close_deadline_, deadline); }
  // Ends the session with these words on every rank.
  void fail(Errc code, uint32_t rank, const std::string& text);

  [[nodiscard]] bool over() const noexcept {
    return state_ == State::kEnding && lanes_released_ == lanes_.size();
  }
  [[nodiscard]] bool ending() const noexcept { return state_ == State::kEnding; }
  // Committed, as far as this reducer knows: what a newcomer asks for is its own mistake from here on.
  [[nodiscard]] bool decided() const noexcept { return state_ == State::kActive || verdict_given_; }
  [[nodiscard]] bool completed() const noexcept { return completed_; }
  [[nodiscard]] const SessionId& id() const noexcept { return id_; }
  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  [[nodiscard]] uint32_t handle() const noexcept { return plan_.handle; }
  [[nodiscard]] uint64_t reserved_bytes() const noexcept { return reserved_; }
  [[nodiscard]] uint32_t rank_count() const noexcept { return plan_.ranks; }
  [[nodiscard]] const char* state_name() const noexcept;
  [[nodiscard]] std::vector<uint32_t> joined_ranks() const;
  // The lane that has waited longest, and for whom.
  [[nodiscard]] LaneSession::Missing missing() const;

 private:
  enum class State : uint8_t { kJoining, kActive, kEnding };
  struct RankState {
    std::shared_ptr<Connection> control;
    std::string peer;
    uint64_t lanes_admitted = 0;  // bit per lane connection
    bool voted = false;
    bool committed = false;
    bool left = false;
    bool leave_acked = false;
    uint32_t leave_done_lanes = 0;
    Nanos last_heard = 0;
    Nanos leave_deadline = 0;
    Nanos lost_at = 0;  // a lane connection closed: the words for it may still come on the control connection
    Errc lost_reason = Errc::kOk;
  };

  void rank_lost(uint32_t rank, Errc reason, const char* which);
  void give_verdict_no(Errc code, uint32_t rank, const std::string& text);
  void give_verdict_yes();
  [[nodiscard]] Nanos join_deadline_for(const wire::Join& join) const noexcept;
  void join_deadline_passed();
  void acknowledge_leave(RankState& r);
  void complete_if_all_left();
  void begin_ending(const std::vector<std::byte>& abort_body);
  void send_heartbeats(Nanos now);
  [[nodiscard]] bool is_arbiter() const noexcept { return agreed_.reducer_index == 0; }
  [[nodiscard]] std::string name(uint32_t rank) const;  // "rank 3 (10.0.0.3:50112)"

  Conductor& conductor_;
  const SessionId id_;
  const std::string job_;
  const wire::Join agreed_;
  const uint32_t first_rank_;
  SessionPlan plan_;
  const uint32_t first_lane_;
  const uint64_t reserved_;
  const Nanos first_join_at_;
  Nanos join_deadline_;  // of the ranks here and, once there is a verdict, of their COMMITs
  State state_ = State::kJoining;
  bool verdict_given_ = false;
  bool completed_ = false;
  uint64_t incarnation_ = 0;
  Nanos next_heartbeat_ = 0;
  Nanos close_deadline_ = 0;
  uint64_t heartbeat_count_ = 0;
  std::vector<RankState> ranks_;
  std::vector<std::unique_ptr<LaneSession>> lanes_;
  size_t lanes_released_ = 0;
};

}  // namespace sluice::reducer
