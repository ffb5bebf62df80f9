// The fault tolerance of a session (protocol.md section 11): resumed connections, lost ranks, view changes,
// and the removal of this reducer from the session.
#include <algorithm>
#include <array>
#include <cstdio>

#include "reducer/control/control_loop.h"
#include "reducer/control/session/session.h"

namespace sluice::reducer {
namespace {

using blackbox::EventKind;

std::string reducer_name(uint64_t id) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "reducer %016llx", static_cast<unsigned long long>(id));
  return text.data();
}

// "reducer 00..1, reducer 00..2 and 3 more"
std::string list_reducers(const std::vector<uint64_t>& ids) {
  constexpr size_t kMaxNamed = 4;
  if (ids.empty()) return "none";
  std::string text;
  for (size_t i = 0; i < std::min(ids.size(), kMaxNamed); ++i)
    text += (i == 0 ? "" : ", ") + reducer_name(ids[i]);
  if (ids.size() > kMaxNamed) text += " and " + std::to_string(ids.size() - kMaxNamed) + " more";
  return text;
}

// Lower bound of the time within which a rank must have been heard to count as present. The clock advances
// only with the control loop's ticks.
constexpr Nanos kMinPresence = 500 * kMillisecond;

// When a process ends, the kernel of its host closes or resets all its connections. A rank that lives knows
// of such ends and opens the connections again at once, or gives this reducer up after its resume timeout (by
// default 2 s), which this time exceeds.
constexpr Nanos kReturnTime = 2200 * kMillisecond;

std::string in_ms(Nanos time) {
  return std::to_string(time / kMillisecond) + " ms";
}

}  // namespace

void Session::start_recovery() {
  // The ranks of a running session join a reducer before they agree to add it. So a rank that has not joined
  // has left the session before.
  for (uint32_t rank = 0; joined_running_session_ && rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].peer.empty()) continue;
    begin_leave(rank);
    acknowledge_leave(rank);
  }
  apply(view_.start(), wire::kNoRank, "reported before the session started");
}

// ---- connections ----

std::optional<Error> Session::check_resume(const wire::Hello& hello, const wire::Attach& attach) const {
  if (auto error = check_job(hello)) return error;
  if (!can_recover() || hello.incarnation != incarnation_ || attach.handle != plan_.handle) {
    return Error{Errc::kUnknownSession,
                 "the session is not running on this reducer, or has another incarnation"};
  }
  if (hello.ranks != plan_.ranks || hello.rank >= plan_.ranks) {
    return Error{Errc::kBadField, "rank " + std::to_string(hello.rank) + " of " +
                                      std::to_string(hello.ranks) + " does not fit the session's " +
                                      std::to_string(plan_.ranks) + " ranks"};
  }
  if (attach.view_hash != ranks_[hello.rank].view_hash)
    return Error{Errc::kBadView, "the view hash differs from that of JOIN"};
  return check_excluded(hello.rank);
}

std::optional<Error> Session::check_excluded(uint32_t rank) const {
  if (!ranks_[rank].is_excluded) return std::nullopt;
  return Error{Errc::kUnknownSession, name(rank) +
                                          " is excluded: it sent too many bad frames and must continue "
                                          "without this reducer"};
}

void Session::resume(const std::shared_ptr<Connection>& control, uint32_t rank) {
  loop_.sessions().wake(*this);
  RankState& r = ranks_[rank];
  if (r.control) r.control->supersede();
  r.control = control;
  r.peer = control->peer();
  r.last_heard = loop_.now();
  r.control_lost_at = 0;
  ++loop_.counters().control_resumes;
  control->bind(*this, rank, plan_.handle);
  control->send(wire::Attached{.slots = 0});
  // The old connection may have lost these messages.
  if (view_.commit()) send_to(rank, *view_.commit());
  if (view_.waits_for(rank)) send_query(rank);
  if (drain_announced_) send_drain_notice(rank);
  log_absence(rank);
}

Nanos Session::absent_since(uint32_t rank) const {
  Nanos since = ranks_[rank].control_lost_at;
  for (const auto& lane : lanes_) {
    if (const Nanos down = lane->down_since(rank); down != 0 && (since == 0 || down < since)) since = down;
  }
  return since;
}

// Counts a lane connection that is on its way to its lane, which does not know its end yet.
bool Session::has_connection(uint32_t rank) const {
  const RankState& r = ranks_[rank];
  if (r.control) return true;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if ((r.lanes_admitted >> i & 1) != 0 && lanes_[i]->down_since(rank) == 0) return true;
  }
  return false;
}

bool Session::is_gone(uint32_t rank) const {
  const RankState& r = ranks_[rank];
  if (!can_recover() || r.has_left || r.may_be_unaware || has_connection(rank)) return false;
  Nanos since = std::max(r.control_lost_at, stalled_until_);
  for (const auto& lane : lanes_) since = std::max(since, lane->down_since(rank));
  return loop_.now() - since >= kReturnTime;
}

std::vector<uint32_t> Session::absent_ranks() const {
  std::vector<uint32_t> absent;
  if (!can_recover()) return absent;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].has_left && absent_since(rank) != 0) absent.push_back(rank);
  }
  return absent;
}

void Session::log_absence(uint32_t rank) {
  RankState& r = ranks_[rank];
  const Nanos since = absent_since(rank);
  if (r.has_left || view_.is_removed() || (since != 0) == (r.reported_absence != 0)) return;
  const std::string subject = ": " + name(rank);
  if (since != 0) {
    log_warning(subject + " lost a connection: " + std::string(to_string(r.lost_reason)));
    uint64_t connection = blackbox::kControlConnection;
    for (uint32_t lane = 0; since != r.control_lost_at && lane < lanes_.size(); ++lane) {
      if (lanes_[lane]->down_since(rank) == since) connection = blackbox::lane_number(lane);
    }
    blackbox_.record(EventKind::kConnectionLost,
                     {.peer = rank, .a = connection, .code = r.lost_reason, .at = since});
  } else {
    blackbox_.record(EventKind::kConnectionResumed, {.peer = rank});
    log_info(subject + " reconnected after " + in_ms(loop_.now() - r.reported_absence));
    r.may_be_unaware = false;
  }
  r.reported_absence = since;
}

void Session::close_rank(uint32_t rank, Errc reason) {
  send_to_lanes(LaneCommand::Kind::kCloseRank, rank);
  if (const auto control = ranks_[rank].control) control->close(reason);
}

// ---- lost ranks ----

void Session::check_absences(Nanos now) {
  if (view_.is_removed()) end_if_moved();
  announce_drain();
  if (!can_recover() || end_if_rest_is_gone()) return;
  const Nanos timeout = loop_.options().absence_timeout;
  // A rank with all connections counts as present only if it was heard lately. A stopped rank keeps its
  // connections, and the other ranks may wait for it before they can continue without this reducer.
  const Nanos presence = std::max(2 * loop_.options().heartbeat, kMinPresence);
  uint32_t lost = wire::kNoRank;
  bool any_present = false;
  bool all_lost = true;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].has_left) continue;
    log_absence(rank);
    const Nanos since = absent_since(rank);
    any_present |= since == 0 && now - ranks_[rank].last_heard < presence;
    if (since == 0 || now - std::max(since, stalled_until_) < timeout) {
      all_lost = false;
    } else if (lost == wire::kNoRank) {
      lost = rank;
    }
  }
  if (lost != wire::kNoRank && all_lost)
    return abandon("every rank lacked a connection for " + in_ms(timeout));
  // With no rank present, this reducer is more likely to be cut off than any rank: the ranks may continue
  // without it.
  if (lost != wire::kNoRank && any_present && view_.is_arbiter()) {
    return fail(Errc::kPeerLost, lost,
                name(lost) + " lost: no connection for " + in_ms(now - absent_since(lost)) +
                    ", no message for " + in_ms(now - ranks_[lost].last_heard));
  }
  close_silent_ranks(now);
}

// As after the death of a rank of an idle communicator, which the other ranks then close. Without this the
// session would hold its memory for the absence timeout.
bool Session::end_if_rest_is_gone() {
  uint32_t gone = wire::kNoRank;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].leave_acked) continue;
    if (!is_gone(rank)) return false;
    gone = rank;
  }
  const bool any_left = std::ranges::any_of(ranks_, [](const RankState& r) { return r.has_left; });
  if (!any_left || gone == wire::kNoRank) return false;
  abandon(name(gone) + " closed its connections and did not return; the other ranks left");
  return true;
}

void Session::abandon(const std::string& why) {
  has_moved_ = view_.is_removed();
  log_warning(" abandoned: " + why);
  if (has_moved_) {
    blackbox_.record(EventKind::kMoved, {}, why);
  } else {
    record_failure(Errc::kPeerLost, wire::kNoRank, "abandoned: " + why);
  }
  loop_.sessions().replace_id_for(id_);
  begin_ending({});
}

// Also on the arbiter: the path in between may be silent. Then the rank is as deaf, or it notices the close
// and can report it to the other reducers. A stopped rank stays absent.
void Session::close_silent_ranks(Nanos now) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& r = ranks_[rank];
    if (!r.control || r.has_left || now - r.last_heard < loop_.options().peer_timeout) continue;
    log_warning(": no message from " + name(rank) + " for " + in_ms(now - r.last_heard) +
                "; closing its connections");
    blackbox_.record(EventKind::kPeerSilent,
                     {.peer = rank, .a = static_cast<uint64_t>((now - r.last_heard) / kMillisecond)});
    close_rank(rank, Errc::kTimeout);
  }
}

void Session::exclude_rank(uint32_t rank, Errc reason) {
  RankState& r = ranks_[rank];
  if (state_ == State::kEnding || r.has_left || r.is_excluded) return;
  r.is_excluded = true;
  const std::string cause =
      "its connections keep breaking by bad frames, last " + std::string(to_string(reason));
  // Either side may be at fault. If there are other reducers, the rank must continue without this one.
  if (!can_recover() || !view_.has_other_reducers())
    return fail(Errc::kPeerLost, rank, name(rank) + " lost: " + cause);
  log_warning(": " + name(rank) + " excluded: " + cause);
  blackbox_.record(EventKind::kRankExcluded, {.peer = rank, .code = reason}, cause);
  close_rank(rank, reason);
}

void Session::on_process_stall(Nanos time) {
  stalled_until_ = loop_.now();
  for (RankState& r : ranks_) r.last_heard += time;
}

// ---- removal of this reducer ----

// After the removal, the ranks close their connections once they have entered the new view.
void Session::end_if_moved() {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].has_left && has_connection(rank)) return;
  }
  // Leaving ranks still wait for their acknowledgement.
  if (has_pending_leave()) return;
  has_moved_ = true;
  log_info(" moved to other reducers");
  blackbox_.record(EventKind::kMoved);
  loop_.sessions().replace_id_for(id_);
  begin_ending({});
}

void Session::announce_drain() {
  if (drain_announced_ || !loop_.is_draining() || view_.is_removed() || !view_.has_other_reducers()) return;
  if (!can_recover()) return;
  drain_announced_ = true;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) send_drain_notice(rank);
}

void Session::send_drain_notice(uint32_t rank) {
  if (ranks_[rank].has_left || view_.is_removed()) return;
  send_to(rank, wire::DrainNotice{.deadline_ms = static_cast<uint32_t>(std::clamp<Nanos>(
                                      loop_.drain_time_left() / kMillisecond, 0, UINT32_MAX))});
}

void Session::stop(Errc code, const std::string& text) {
  if (!can_recover() || !view_.has_other_reducers()) return fail(code, wire::kNoRank, text);
  has_moved_ = true;
  log_info(" left to the other reducers: " + text);
  blackbox_.record(EventKind::kMoved, {}, text);
  begin_ending({});
}

// ---- view changes ----

// Closes the connection of a rank that does not read, instead of queuing more for it. The rank gets the
// messages again when it resumes.
template <typename M>
void Session::send_to(uint32_t rank, const M& message) {
  const auto control = ranks_[rank].control;
  if (!control || control->is_finishing()) return;
  if (control->is_backed_up()) return control->close(Errc::kTooMany);
  control->send(message);
}

template <typename M>
void Session::broadcast(const M& message) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) send_to(rank, message);
}

void Session::on_suspect(Connection& /*from*/, uint32_t rank, const wire::Suspect& suspect) {
  if (state_ == State::kEnding) return;
  // A draining reducer removes no other draining one. So of all that drain, the reducer that began last
  // stays, or those that began at the same time.
  if (suspect.code == Errc::kDraining && drain_announced_ && !view_.is_self(suspect.reducer)) return;
  const std::string cause =
      name(rank) + " suspects " + reducer_name(suspect.reducer) + ": " + std::string(to_string(suspect.code));
  apply(view_.on_suspect(suspect.reducer), rank, cause);
}

void Session::on_view_known(Connection& from, uint32_t rank, const wire::ViewKnown& known) {
  if (state_ == State::kEnding) return;
  const ViewChange::Step step = view_.on_view_known(known);
  if (step == ViewChange::Step::kMalformed) return from.close(Errc::kBadField);
  apply(step, rank, name(rank) + " reported added or removed reducers");
}

void Session::on_rate_changes(Connection& from, uint32_t rank, const wire::RateChanges& changes) {
  if (state_ == State::kEnding) return;
  const ViewChange::Step step = view_.on_rate_changes(changes);
  if (step == ViewChange::Step::kMalformed) return from.close(Errc::kBadField);
  apply(step, rank, name(rank) + " reported a changed link rate");
}

void Session::on_view_answer(Connection& /*from*/, uint32_t rank, const wire::ViewAnswer& answer) {
  if (state_ == State::kEnding) return;
  apply(view_.on_view_answer(rank, answer), rank, "all ranks answered");
}

// The link rates of the proposal are sent first: VIEW_QUERY has no room for them.
void Session::send_query(uint32_t rank) {
  for (const wire::RateChanges& changes : wire::rate_messages(view_.query_rates())) send_to(rank, changes);
  send_to(rank, *view_.query());
}

void Session::apply(ViewChange::Step step, uint32_t rank, const std::string& cause) {
  if (view_.is_removed() && !removal_logged_) {
    removal_logged_ = true;
    log_info(" continues without this reducer: " + cause);
  }
  const std::string view = ": view ";
  switch (step) {
    case ViewChange::Step::kNothing: return;
    case ViewChange::Step::kPropose: {
      const wire::ViewQuery& query = *view_.query();
      ++loop_.counters().views_proposed;
      blackbox_.record(EventKind::kViewProposed, {.a = query.version},
                       "removed: " + list_reducers(query.removed) + ", added: " + list_reducers(query.added) +
                           "; " + cause);
      log_info(view + std::to_string(query.version) + " proposed, removed: " + list_reducers(query.removed) +
               ", added: " + list_reducers(query.added) + "; " + cause);
      for (uint32_t to = 0; to < ranks_.size(); ++to) send_query(to);
      return;
    }
    case ViewChange::Step::kCommit: {
      const wire::ViewCommit& commit = *view_.commit();
      ++loop_.counters().views_committed;
      blackbox_.record(EventKind::kViewCommitted, {.a = commit.version, .b = commit.base_chunk});
      log_info(view + std::to_string(commit.version) + " committed from chunk " +
               std::to_string(commit.base_chunk) + " on; " + cause);
      return broadcast(commit);
    }
    case ViewChange::Step::kMismatch:
      return fail(Errc::kMismatch, rank,
                  "ranks disagree on view " + std::to_string(view_.query()->version) + ": the view hash of " +
                      name(rank) + " differs from that of " + name(view_.first_answered_rank()));
    case ViewChange::Step::kNoneLeft:
      return fail(Errc::kReducerLost, wire::kNoRank, "no reducer of the session is left; " + cause);
    case ViewChange::Step::kTooMany:
      return fail(Errc::kTooMany, wire::kNoRank, "too many changes of reducers and link rates; " + cause);
    case ViewChange::Step::kMalformed: return;
  }
}

}  // namespace sluice::reducer
