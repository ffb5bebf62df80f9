// Class SessionRegistry admits ranks to sessions and owns the sessions of a reducer.
//
// It checks a JOIN against the limits, creates the session for the first rank, and frees a session after its
// lanes have released it. Control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "reducer/control/due_times.h"
#include "reducer/control/session/join_outcomes.h"
#include "reducer/control/session/session.h"
#include "reducer/control/session/session_totals.h"
#include "reducer/control/tenants.h"
#include "reducer/lane/lane_messages.h"
#include "wire/messages.h"

namespace sluice::reducer {

class Connection;
class ControlLoop;

class SessionRegistry {
 public:
  // `loop` and its options must outlive the registry. `own_id` identifies this reducer.
  SessionRegistry(ControlLoop& loop, const ReducerOptions& options, uint64_t own_id);

  // Adds the rank to its session or refuses it. False: the rank was refused before it reached a session.
  bool join(Connection& connection, const wire::Hello& hello, const wire::Join& join);
  // The session of this id, unless it is ending.
  [[nodiscard]] Session* find(const SessionId& id);

  // The verdict on the session of `hello`, for clients of its job: an open session's own, otherwise one that
  // is kept.
  [[nodiscard]] wire::Verdict find_verdict(const wire::Hello& hello);

  // The id by which ranks of this session know the reducer.
  [[nodiscard]] uint64_t id_for(const SessionId& session) const;
  // The session continues without this reducer and never takes a removed id back. If its ranks add this
  // reducer again, they must see another id.
  void replace_id_for(const SessionId& session);

  // The tenant that a session of this client counts for.
  [[nodiscard]] std::string tenant_of(const wire::Hello& hello) const;
  [[nodiscard]] Tenants& tenants() noexcept { return tenants_; }
  [[nodiscard]] JoinOutcomes& outcomes() noexcept { return outcomes_; }

  void on_lane_event(const LaneEvent& event);
  // A session has begun to end. From within calls of it, so it is moved out of open() later.
  void note_ending(Session& session) {
    ended_.push_back(&session);
    wake(session);
  }
  // Begins a pass over the sessions that are due now. Then tick_some() ticks some of them, in a bounded time,
  // and returns true until the pass is complete.
  void begin_ticks(Nanos now) noexcept { pass_at_ = now; }
  [[nodiscard]] bool tick_some(Nanos now);
  // Something has happened to the session that its next tick did not expect: it is due at the next pass.
  void wake(const Session& session);
  void wake_all();
  // Begins to add up all sessions for the status. Then survey_some() adds some of them, in a bounded time,
  // and returns true until totals() has all.
  void begin_survey();
  [[nodiscard]] bool survey_some(Nanos now);
  [[nodiscard]] const SessionTotals& totals() const noexcept { return totals_; }
  // This process did not run for `time`.
  void on_process_stall(Nanos time);
  // Ends every session; sessions that are ending already wait no longer than `linger_deadline` for their
  // peers.
  void stop(Errc code, const std::string& text, Nanos linger_deadline);
  // Moves ended sessions out of open(), which makes their ids available, and frees some of those that the
  // lanes have released, in a bounded time. True: there are more of them.
  bool release_ended();

  using OpenSessions = std::map<SessionId, std::unique_ptr<Session>>;
  using EndingSessions = std::map<uint32_t, std::unique_ptr<Session>>;  // by handle
  [[nodiscard]] const OpenSessions& open() const noexcept { return open_; }
  [[nodiscard]] const EndingSessions& ending() const noexcept { return ending_; }
  [[nodiscard]] bool is_empty() const noexcept { return open_.empty() && ending_.empty(); }
  [[nodiscard]] uint64_t reserved_bytes() const noexcept { return reserved_bytes_; }

 private:
  struct ReplacementId {
    uint64_t id;
    Nanos since;
  };

  // Beyond this, the oldest replacement is dropped: its session cannot add this reducer again.
  static constexpr size_t kMaxReplacementIds = 4096;

  // Ranks of ticked and of surveyed sessions, and freed sessions, of one turn of the control loop: others
  // wait meanwhile.
  static constexpr size_t kTickedRanksPerTurn = 256, kSurveyedRanksPerTurn = 2048, kFreedPerTurn = 64;

  [[nodiscard]] std::optional<Error> check_join(const wire::Hello& hello, const wire::Join& join) const;
  [[nodiscard]] uint32_t next_handle();

  ControlLoop& loop_;
  const ReducerOptions& options_;
  const uint64_t own_id_;
  Tenants tenants_;
  JoinOutcomes outcomes_;
  OpenSessions open_;
  EndingSessions ending_;
  std::map<uint32_t, Session*> by_handle_;  // all of both
  std::vector<Session*> ended_;             // still in open_
  std::vector<uint32_t> released_;          // handles of sessions to free
  DueTimes<uint32_t> due_;                  // of all of both
  Nanos pass_at_ = 0;                       // the present pass, or the last one
  SessionTotals totals_;
  uint32_t surveyed_ = 0;  // handles up to this one are in the totals
  std::map<SessionId, ReplacementId> replacement_ids_;
  uint64_t reserved_bytes_ = 0;
  uint32_t last_handle_ = 0;
};

}  // namespace sluice::reducer
