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
#include "reducer/control/session/join_outcomes.h"
#include "reducer/control/session/session.h"
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
  void tick(Nanos now);
  // This process did not run for `time`.
  void on_process_stall(Nanos time);
  // Ends every session; sessions that are ending already wait no longer than `linger_deadline` for their
  // peers.
  void stop(Errc code, const std::string& text, Nanos linger_deadline);
  // Moves ended sessions out of open(), which makes their ids available, and frees those that the lanes have
  // released.
  void release_ended();

  using OpenSessions = std::map<SessionId, std::unique_ptr<Session>>;
  [[nodiscard]] const OpenSessions& open() const noexcept { return open_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Session>>& ending() const noexcept { return ending_; }
  [[nodiscard]] bool is_empty() const noexcept { return open_.empty() && ending_.empty(); }
  // Ranks in the largest session. Not the sum over the sessions: a job has a session for each communicator
  // and head, and each has all of the job's nodes.
  [[nodiscard]] uint32_t max_joined_ranks() const;
  [[nodiscard]] uint64_t reserved_bytes() const noexcept { return reserved_bytes_; }

 private:
  struct ReplacementId {
    uint64_t id;
    Nanos since;
  };

  // Beyond this, the oldest replacement is dropped: its session cannot add this reducer again.
  static constexpr size_t kMaxReplacementIds = 4096;

  [[nodiscard]] std::optional<Error> check_join(const wire::Hello& hello, const wire::Join& join) const;

  ControlLoop& loop_;
  const ReducerOptions& options_;
  const uint64_t own_id_;
  Tenants tenants_;
  JoinOutcomes outcomes_;
  OpenSessions open_;
  std::vector<std::unique_ptr<Session>> ending_;
  std::map<SessionId, ReplacementId> replacement_ids_;
  uint64_t reserved_bytes_ = 0;
  uint32_t next_handle_ = 1;
};

}  // namespace sluice::reducer
