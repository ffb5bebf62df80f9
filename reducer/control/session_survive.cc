// A session's losses where they are survived: connections that come back or do not, views that change, the
// reducer that goes (PROTOCOL.md section 11).
#include <algorithm>
#include <array>
#include <cstdio>

#include "core/log.h"
#include "reducer/control/conductor.h"
#include "reducer/control/session.h"

namespace sluice::reducer {
namespace {

std::string reducer_name(uint64_t id) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "reducer %016llx", static_cast<unsigned long long>(id));
  return text.data();
}

// "reducer 00..1, reducer 00..2", as many as a line can take.
std::string list_reducers(const std::vector<uint64_t>& ids) {
  constexpr size_t kNamed = 4;
  if (ids.empty()) return "none";
  std::string text;
  for (size_t i = 0; i < std::min(ids.size(), kNamed); ++i)
    text += (i == 0 ? "" : ", ") + reducer_name(ids[i]);
  if (ids.size() > kNamed) text += " and " + std::to_string(ids.size() - kNamed) + " more";
  return text;
}

// Least silence that makes a rank no witness: the clock that hears and judges goes by the conductor's ticks.
constexpr Nanos kWitness = 500 * kMillisecond;

std::string in_ms(Nanos time) {
  return std::to_string(time / kMillisecond) + " ms";
}

}  // namespace

void Session::begin_surviving() {
  // The ranks of a session that runs join a reducer before they agree to its coming: who has not, left
  // before.
  for (uint32_t rank = 0; came_later_ && rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].peer.empty()) continue;
    take_leave(rank);
    acknowledge_leave(rank);
  }
  carry_out(view_.start(), wire::kNoRank, "heard before the session began");
}

// ---- connections ----

std::optional<Error> Session::bars_resume(const wire::Hello& hello, const wire::Attach& attach) const {
  if (auto error = foreign_job(hello)) return error;
  if (!outlives_losses() || hello.incarnation != incarnation_ || attach.handle != plan_.handle)
    return Error{Errc::kUnknownSession, "the session does not run here, or is another one"};
  if (hello.ranks != plan_.ranks || hello.rank >= plan_.ranks) {
    return Error{Errc::kBadField, "rank " + std::to_string(hello.rank) + " of " +
                                      std::to_string(hello.ranks) + " is none of the session's " +
                                      std::to_string(plan_.ranks)};
  }
  if (attach.view_hash != ranks_[hello.rank].view_hash)
    return Error{Errc::kBadView, "view hash differs from that of the join"};
  return bars_unfit(hello.rank);
}

std::optional<Error> Session::bars_unfit(uint32_t rank) const {
  if (!ranks_[rank].unfit) return std::nullopt;
  return Error{Errc::kUnknownSession,
               "too many bad frames came from " + name(rank) + ": it must do without this reducer"};
}

void Session::resume(const std::shared_ptr<Connection>& control, uint32_t rank) {
  RankState& r = ranks_[rank];
  if (r.control) r.control->supersede();
  r.control = control;
  r.peer = control->peer();
  r.last_heard = conductor_.now();
  r.control_down = 0;
  ++conductor_.survival().control_resumes;
  control->bind(*this, rank, plan_.handle);
  control->send(wire::Attached{.slots = 0});
  // What was said on the old connection may not have arrived.
  if (view_.commit()) say(rank, *view_.commit());
  if (view_.waits_for(rank)) say(rank, *view_.query());
  if (drain_announced_) tell_drain(rank);
  note_absence(rank);
}

Nanos Session::absent_since(uint32_t rank) const {
  Nanos since = ranks_[rank].control_down;
  for (const auto& lane : lanes_) {
    if (const Nanos down = lane->down_since(rank); down != 0 && (since == 0 || down < since)) since = down;
  }
  return since;
}

// A lane connection that is on its way to its lane counts: the lane knows nothing of its end yet.
bool Session::has_connection(uint32_t rank) const {
  const RankState& r = ranks_[rank];
  if (r.control) return true;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if ((r.lanes_admitted >> i & 1) != 0 && lanes_[i]->down_since(rank) == 0) return true;
  }
  return false;
}

std::vector<uint32_t> Session::absent_ranks() const {
  std::vector<uint32_t> absent;
  if (!outlives_losses()) return absent;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].left && absent_since(rank) != 0) absent.push_back(rank);
  }
  return absent;
}

void Session::note_absence(uint32_t rank) {
  RankState& r = ranks_[rank];
  const Nanos since = absent_since(rank);
  if (r.left || view_.removed() || (since != 0) == (r.absence_noted != 0)) return;
  const std::string who = "session " + to_string(id_) + ": " + name(rank);
  if (since != 0) {
    log::warn(who + " lost a connection: " + std::string(to_string(r.lost_reason)));
  } else {
    log::info(who + " is back after " + in_ms(conductor_.now() - r.absence_noted));
  }
  r.absence_noted = since;
}

void Session::close_rank(uint32_t rank, Errc reason) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    conductor_.send_command(
        first_lane_ + static_cast<uint32_t>(i),
        {.kind = LaneCommand::Kind::kCloseRank, .session = lanes_[i].get(), .rank = rank});
  }
  if (const auto control = ranks_[rank].control) control->close(reason);
}

// ---- the clock ----

void Session::watch_ranks(Nanos now) {
  if (view_.removed()) end_if_moved();
  announce_drain();
  if (!outlives_losses()) return;
  const Nanos timeout = conductor_.options().absence_timeout;
  // A rank that stands still keeps its connections, and may be what the others' going on without this reducer
  // waits for: that it is there says nothing.
  const Nanos lately = std::max(2 * conductor_.options().heartbeat, kWitness);
  uint32_t lost = wire::kNoRank;
  bool one_has_all = false;
  bool all_lost = true;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].left) continue;
    note_absence(rank);
    const Nanos since = absent_since(rank);
    one_has_all |= since == 0 && now - ranks_[rank].last_heard < lately;
    if (since == 0 || now - std::max(since, slept_until_) < timeout) {
      all_lost = false;
    } else if (lost == wire::kNoRank) {
      lost = rank;
    }
  }
  if (lost != wire::kNoRank && all_lost)
    return forget("no rank has had its connections for " + in_ms(timeout));
  // That none of them is here says more of this reducer than of any rank: they may go on without it.
  if (lost != wire::kNoRank && one_has_all && view_.arbiter()) {
    return fail(Errc::kPeerLost, lost,
                name(lost) + " was lost: no connection for " + in_ms(now - absent_since(lost)) +
                    ", not heard for " + in_ms(now - ranks_[lost].last_heard));
  }
  watch_silence(now);
}

void Session::forget(const std::string& why) {
  moved_ = view_.removed();
  log::warn("session " + to_string(id_) + " forgotten: " + why);
  conductor_.become_another_for(id_);
  begin_ending({});
}

// The arbiter too: the path between may be what is silent, and then the rank hears nothing either, or will
// hear of the close, and can say so to the others. One that stands still stays absent.
void Session::watch_silence(Nanos now) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& r = ranks_[rank];
    if (!r.control || r.left || now - r.last_heard < conductor_.options().peer_timeout) continue;
    log::warn("session " + to_string(id_) + ": " + name(rank) + " is silent for " +
              in_ms(now - r.last_heard) + ": connections closed");
    close_rank(rank, Errc::kTimeout);
  }
}

void Session::rank_unfit(uint32_t rank, Errc reason) {
  RankState& r = ranks_[rank];
  if (state_ == State::kEnding || r.left || r.unfit) return;
  r.unfit = true;
  const std::string what = "its connections break over and over, " + std::string(to_string(reason));
  // Whose fault it is cannot be seen from here. Others live: the rank has to do without this reducer.
  if (!outlives_losses() || !view_.others_live())
    return fail(Errc::kPeerLost, rank, name(rank) + " was lost: " + what);
  log::warn("session " + to_string(id_) + ": " + name(rank) + " is taken back no more: " + what);
  close_rank(rank, reason);
}

void Session::slept(Nanos time) {
  slept_until_ = conductor_.now();
  for (RankState& r : ranks_) r.last_heard += time;
}

// The ranks of a reducer that was removed close their connections when they have changed views.
void Session::end_if_moved() {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].left && has_connection(rank)) return;
  }
  // Those that are leaving have their answer coming.
  if (leave_pending()) return;
  moved_ = true;
  log::info("session " + to_string(id_) + " moved to other reducers");
  conductor_.become_another_for(id_);
  begin_ending({});
}

void Session::announce_drain() {
  if (drain_announced_ || !conductor_.draining() || view_.removed() || !view_.others_live()) return;
  if (!outlives_losses()) return;
  drain_announced_ = true;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) tell_drain(rank);
}

void Session::tell_drain(uint32_t rank) {
  if (ranks_[rank].left || view_.removed()) return;
  say(rank, wire::DrainNotice{.deadline_ms = static_cast<uint32_t>(
                                  std::clamp<Nanos>(conductor_.drain_left() / kMillisecond, 0, UINT32_MAX))});
}

void Session::stop(Errc code, const std::string& text) {
  if (!outlives_losses() || !view_.others_live()) return fail(code, wire::kNoRank, text);
  moved_ = true;
  log::info("session " + to_string(id_) + " left to the other reducers: " + text);
  begin_ending({});
}

// ---- views ----

// A rank that does not read what it is told is cut off rather than remembered for: it is told again when it
// comes back.
template <typename M>
void Session::say(uint32_t rank, const M& message) {
  const auto control = ranks_[rank].control;
  if (!control || control->finishing()) return;
  if (control->backed_up()) return control->close(Errc::kTooMany);
  control->send(message);
}

template <typename M>
void Session::say_to_all(const M& message) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) say(rank, message);
}

void Session::on_suspect(uint32_t rank, const wire::Suspect& suspect) {
  if (state_ == State::kEnding) return;
  // Who drains lets nobody else go for it: of all that drain, the one that began last stays, or those that
  // began at once.
  if (suspect.code == Errc::kDraining && drain_announced_ && !view_.is_self(suspect.reducer)) return;
  const std::string why =
      name(rank) + " suspects " + reducer_name(suspect.reducer) + ": " + std::string(to_string(suspect.code));
  carry_out(view_.suspect(suspect.reducer), rank, why);
}

void Session::on_view_known(Connection& from, uint32_t rank, const wire::ViewKnown& known) {
  if (state_ == State::kEnding) return;
  const ViewChange::Step step = view_.known(known);
  if (step == ViewChange::Step::kMalformed) return from.close(Errc::kBadField);
  carry_out(step, rank, name(rank) + " knows of others that came or went");
}

void Session::on_view_answer(uint32_t rank, const wire::ViewAnswer& answer) {
  if (state_ == State::kEnding) return;
  carry_out(view_.answer(rank, answer), rank, "all ranks have answered");
}

void Session::carry_out(ViewChange::Step step, uint32_t rank, const std::string& why) {
  if (view_.removed() && !removal_noted_) {
    removal_noted_ = true;
    log::info("session " + to_string(id_) + " goes on without this reducer: " + why);
  }
  const std::string session = "session " + to_string(id_) + ": view ";
  switch (step) {
    case ViewChange::Step::kNothing: return;
    case ViewChange::Step::kPropose: {
      const wire::ViewQuery& query = *view_.query();
      ++conductor_.survival().views_proposed;
      log::info(session + std::to_string(query.version) + " proposed, removed: " +
                list_reducers(query.removed) + ", added: " + list_reducers(query.added) + "; " + why);
      return say_to_all(query);
    }
    case ViewChange::Step::kCommit: {
      const wire::ViewCommit& commit = *view_.commit();
      ++conductor_.survival().views_committed;
      log::info(session + std::to_string(commit.version) + " committed, from chunk " +
                std::to_string(commit.base_chunk) + " on; " + why);
      return say_to_all(commit);
    }
    case ViewChange::Step::kMismatch:
      return fail(Errc::kMismatch, rank,
                  "ranks disagree on view " + std::to_string(view_.query()->version) + ": its hash at " +
                      name(rank) + " is not that of " + name(view_.first_answerer()));
    case ViewChange::Step::kNoneLeft:
      return fail(Errc::kReducerLost, wire::kNoRank, "no reducer is left; " + why);
    case ViewChange::Step::kTooMany:
      return fail(Errc::kTooMany, wire::kNoRank, "too many reducers came and went; " + why);
    case ViewChange::Step::kMalformed: return;
  }
}

}  // namespace sluice::reducer
