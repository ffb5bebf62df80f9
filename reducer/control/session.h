// One session at this reducer: who has joined, what they agreed on, the vote, the lanes' part of it, its end.
// Conductor thread only.
//
//   kJoining -> kActive -> kEnding -> (freed)        kJoining -> kEnding when the join fails
//
// kEnding: every rank has been told (or has left), the lanes are closing; freed when each lane has let go.
//
// A session that survives losses (PROTOCOL.md section 11) does so while it is kActive: session_survive.cc.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "reducer/control/connection.h"
#include "reducer/control/view_change.h"
#include "reducer/fair/fair_shares.h"
#include "reducer/lane/lane_messages.h"
#include "reducer/lane/lane_session.h"
#include "reducer/slots/session_plan.h"
#include "transport/rdma/memory.h"
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
  ~Session();
  Session& operator=(const Session&) = delete;

  // Bytes a session of this shape reserves here: the formula of docs/operations.md.
  [[nodiscard]] static uint64_t bytes_for(const wire::Hello& hello, const wire::Join& join) noexcept;

  // ---- join ----
  // Why a connection of this job is none of the session's; nothing when it is. A token opens the sessions of
  // its own job only, so this comes before everything else that is said about the session.
  [[nodiscard]] std::optional<Error> foreign_job(const wire::Hello& hello) const;
  // Why this JOIN can't be part of the session; nothing when it can.
  [[nodiscard]] std::optional<Error> difference(const wire::Hello& hello, const wire::Join& join,
                                                const std::string& peer) const;
  [[nodiscard]] Status map_slots();  // kMemoryLimit when the system has no address space
  // From here on its lanes take part in the pool's shares, under this account. After map_slots().
  void take_share(FairAccount& account);
  void add(const std::shared_ptr<Connection>& control, const wire::Hello& hello, const wire::Join& join);
  // W, or why this lane connection is refused.
  [[nodiscard]] Result<uint32_t> admit_lane(const wire::Hello& hello, const wire::Attach& attach);
  void lane_attached(uint32_t rank, uint32_t lane, transport::tcp::Socket socket);

  // ---- from control connections ----
  void heard(uint32_t rank);
  void on_vote(Connection& from, uint32_t rank, const wire::Vote& vote);
  void on_commit(Connection& from, uint32_t rank, uint64_t incarnation);
  void on_heartbeat(uint32_t rank, const wire::Heartbeat& beat);
  void on_leave(Connection& from, uint32_t rank, const wire::Leave& leave);
  void on_abort(uint32_t rank, const wire::Abort& abort);
  void control_lost(uint32_t rank, Errc reason);

  // ---- surviving losses (session_survive.cc) ----
  // Why a control connection may not take the place of the rank's; nothing when it may.
  [[nodiscard]] std::optional<Error> bars_resume(const wire::Hello& hello, const wire::Attach& attach) const;
  void resume(const std::shared_ptr<Connection>& control, uint32_t rank);
  [[nodiscard]] bool survives() const noexcept { return plan_.survives; }
  void on_suspect(uint32_t rank, const wire::Suspect& suspect);
  void on_view_known(Connection& from, uint32_t rank, const wire::ViewKnown& known);
  void on_view_answer(uint32_t rank, const wire::ViewAnswer& answer);

  // ---- from lanes and the clock ----
  void on_event(const LaneEvent& event);
  void tick(Nanos now);
  // This process stood still so long: what ranks said meanwhile has not been read yet.
  void slept(Nanos time);

  // Of a session that is ending: wait for its peers no longer than this.
  void end_by(Nanos deadline) noexcept { close_deadline_ = std::min(close_deadline_, deadline); }
  // Ends the session with these words on every rank.
  void fail(Errc code, uint32_t rank, const std::string& text);
  // This reducer ends now: so does the session, unless its ranks can go on with the others, who are left to
  // find out by themselves.
  void stop(Errc code, const std::string& text);

  [[nodiscard]] bool over() const noexcept {
    return state_ == State::kEnding && lanes_released_ == lanes_.size();
  }
  [[nodiscard]] bool ending() const noexcept { return state_ == State::kEnding; }
  // Committed, as far as this reducer knows: what a newcomer asks for is its own mistake from here on.
  [[nodiscard]] bool decided() const noexcept { return state_ == State::kActive || verdict_given_; }
  [[nodiscard]] bool completed() const noexcept { return completed_; }
  [[nodiscard]] bool moved() const noexcept { return moved_; }  // ended here, goes on at other reducers
  [[nodiscard]] const SessionId& id() const noexcept { return id_; }
  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  [[nodiscard]] const std::string& tenant() const noexcept { return tenant_; }
  [[nodiscard]] uint64_t served_bytes() const noexcept;
  [[nodiscard]] const FairShares::Member& share() const noexcept { return share_; }
  [[nodiscard]] uint32_t handle() const noexcept { return plan_.handle; }
  [[nodiscard]] uint64_t reserved_bytes() const noexcept { return reserved_; }
  // Of a lane connection that was admitted.
  [[nodiscard]] transport::rdma::PairMemory pair_memory(uint32_t rank, uint32_t lane) const {
    return {.memory = memory_[lane].memory,
            .lends = lanes_[lane]->slots_of(rank),
            .owner = lanes_[lane]->memory_owner()};
  }
  [[nodiscard]] uint32_t rank_count() const noexcept { return plan_.ranks; }
  [[nodiscard]] const char* state_name() const noexcept;
  [[nodiscard]] std::vector<uint32_t> joined_ranks() const;
  // The lane that has waited longest, and for whom.
  [[nodiscard]] LaneSession::Missing missing() const;
  // How long the others waited for this rank in all, on the lane where that was longest.
  [[nodiscard]] Nanos waited_for(uint32_t rank) const noexcept;
  [[nodiscard]] bool joining() const noexcept { return state_ == State::kJoining; }
  [[nodiscard]] uint16_t roster_version() const noexcept { return view_.roster().version(); }
  [[nodiscard]] std::vector<uint32_t> absent_ranks() const;  // that have not all their connections

 private:
  enum class State : uint8_t { kJoining, kActive, kEnding };
  struct RankState {
    std::shared_ptr<Connection> control;
    std::string peer;
    uint64_t view_hash = 0;       // of its JOIN: what its ATTACHes must carry
    uint64_t lanes_admitted = 0;  // bit per lane connection
    bool voted = false;
    bool committed = false;
    bool left = false;
    bool leave_acked = false;
    uint64_t finished = 0;  // its first chunk without a result, as last told
    Nanos last_heard = 0;
    Nanos leave_deadline = 0;
    Nanos lost_at = 0;  // a lane connection closed: the words for it may still come on the control connection
    Errc lost_reason = Errc::kOk;
    bool unfit = false;       // its connections are not taken back
    Nanos control_down = 0;   // since when a session that survives has no control connection of it
    Nanos absence_noted = 0;  // what the log was told of absent_since()
  };

  void rank_lost(uint32_t rank, Errc reason, const char* which);
  void give_verdict_no(Errc code, uint32_t rank, const std::string& text);
  void give_verdict_yes();
  [[nodiscard]] Nanos join_deadline_for(const wire::Join& join) const noexcept;
  void join_deadline_passed();
  void take_leave(uint32_t rank);
  [[nodiscard]] bool leave_pending() const;
  void acknowledge_leaves();
  void acknowledge_leave(uint32_t rank);
  void ask_what_is_finished();
  void complete_if_all_left();
  void begin_ending(const std::vector<std::byte>& abort_body);
  [[nodiscard]] wire::Heartbeat heartbeat();
  static void tell(const RankState& r, const wire::Heartbeat& beat);
  // Of the join. Who joins a session that runs votes on nothing.
  [[nodiscard]] bool counts_votes() const noexcept { return agreed_.reducer_index == 0 && !came_later_; }
  [[nodiscard]] std::string name(uint32_t rank) const;  // "rank 3 (10.0.0.3:50112)"
  [[nodiscard]] std::optional<Error> different_kind(const wire::Hello& hello, const std::string& rank) const;

  // session_survive.cc
  [[nodiscard]] bool outlives_losses() const noexcept { return plan_.survives && state_ == State::kActive; }
  // Since when the rank lacks a connection that it had; 0: it has all.
  [[nodiscard]] Nanos absent_since(uint32_t rank) const;
  [[nodiscard]] bool has_connection(uint32_t rank) const;
  void note_absence(uint32_t rank);
  void watch_ranks(Nanos now);
  void watch_silence(Nanos now);
  [[nodiscard]] std::optional<Error> bars_unfit(uint32_t rank) const;
  void rank_unfit(uint32_t rank, Errc reason);
  void forget(const std::string& why);
  void end_if_moved();
  void close_rank(uint32_t rank, Errc reason);
  void carry_out(ViewChange::Step step, uint32_t rank, const std::string& why);
  void announce_drain();
  void tell_drain(uint32_t rank);
  template <typename M>
  void say(uint32_t rank, const M& message);
  template <typename M>
  void say_to_all(const M& message);
  void begin_surviving();

  Conductor& conductor_;
  const SessionId id_;
  const std::string job_;
  const std::string tenant_;
  const wire::Join agreed_;
  const uint32_t first_rank_;
  const bool came_later_;  // joined when it ran already, at other reducers
  SessionPlan plan_;
  const uint32_t first_lane_;
  const uint64_t reserved_;
  const Nanos first_join_at_;
  Nanos join_deadline_;  // of the ranks here and, once there is a verdict, of their COMMITs
  State state_ = State::kJoining;
  bool verdict_given_ = false;
  bool completed_ = false;
  bool moved_ = false;
  uint64_t incarnation_ = 0;
  Nanos next_heartbeat_ = 0;
  Nanos close_deadline_ = 0;
  uint64_t heartbeat_count_ = 0;
  std::vector<RankState> ranks_;
  std::vector<std::unique_ptr<LaneSession>> lanes_;
  // What devices may read of a lane; the ranks' own slots are with their queue pairs.
  struct LaneMemory {
    std::shared_ptr<transport::rdma::Memory> memory;
    transport::rdma::KnownBytes results;
  };
  std::vector<LaneMemory> memory_;
  size_t lanes_released_ = 0;
  FairShares::Member share_;
  ViewChange view_;
  bool drain_announced_ = false;
  Nanos slept_until_ = 0;  // what happened before is not known yet
  bool removal_noted_ = false;
};

}  // namespace sluice::reducer
