// A session's life after the join: beats, losses, leaving, ending.
#include "reducer/control/session.h"

#include <algorithm>

#include "core/log.h"
#include "reducer/control/conductor.h"

namespace sluice::reducer {
namespace {

// How long a closed lane connection waits for its reason on the control connection before the rank counts as
// lost.
constexpr Nanos kReasonGrace = 200 * kMillisecond;

}  // namespace

std::string Session::name(uint32_t rank) const {
  return "rank " + std::to_string(rank) + (ranks_[rank].peer.empty() ? "" : " (" + ranks_[rank].peer + ")");
}

const char* Session::state_name() const noexcept {
  switch (state_) {
    case State::kJoining: return "joining";
    case State::kActive: return "active";
    case State::kEnding: return "ending";
  }
  return "?";
}

void Session::heard(uint32_t rank) {
  ranks_[rank].last_heard = conductor_.now();
}

void Session::on_heartbeat(uint32_t rank, const wire::Heartbeat& beat) {
  RankState& r = ranks_[rank];
  if (beat.finished <= r.finished) return;
  r.finished = beat.finished;
  if (state_ == State::kActive && leave_pending()) acknowledge_leaves();
}

void Session::on_leave(Connection& from, uint32_t rank, const wire::Leave& leave) {
  RankState& r = ranks_[rank];
  if (state_ == State::kActive && r.left && plan_.survives) {  // said again on a connection that was resumed
    if (!r.leave_acked) return;
    from.send(wire::LeaveAck{});
    return from.finish();
  }
  if (state_ != State::kActive || r.left) return from.close(Errc::kUnexpectedMessage);
  const bool asked = leave_pending();  // tick() asks again
  r.finished = std::max(r.finished, leave.finished);
  take_leave(rank);
  acknowledge_leaves();
  if (!asked) ask_what_is_finished();
}

void Session::take_leave(uint32_t rank) {
  RankState& r = ranks_[rank];
  r.left = true;
  r.leave_deadline = conductor_.now() + conductor_.options().linger_timeout;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    conductor_.send_command(first_lane_ + static_cast<uint32_t>(i),
                            {.kind = LaneCommand::Kind::kRankLeft, .session = lanes_[i].get(), .rank = rank});
  }
}

bool Session::leave_pending() const {
  return std::ranges::any_of(ranks_, [](const RankState& r) { return r.left && !r.leave_acked; });
}

// A rank may go when nobody can miss what it holds: every other one has as many results, or leaves too
// (PROTOCOL.md section 10).
void Session::acknowledge_leaves() {
  uint64_t all_have = UINT64_MAX;
  for (const RankState& r : ranks_) {
    if (!r.left) all_have = std::min(all_have, r.finished);
  }
  for (uint32_t rank = 0; rank < ranks_.size() && state_ == State::kActive; ++rank) {
    const RankState& r = ranks_[rank];
    if (r.left && !r.leave_acked && r.finished <= all_have) acknowledge_leave(rank);
  }
  complete_if_all_left();
}

// Those that had less when they last told.
void Session::ask_what_is_finished() {
  if (state_ != State::kActive || !leave_pending()) return;
  uint64_t wanted = 0;
  for (const RankState& r : ranks_) {
    if (r.left && !r.leave_acked) wanted = std::max(wanted, r.finished);
  }
  wire::Heartbeat beat = heartbeat();
  beat.answer = 1;
  for (const RankState& r : ranks_) {
    if (r.finished < wanted) tell(r, beat);
  }
}

void Session::acknowledge_leave(uint32_t rank) {
  RankState& r = ranks_[rank];
  if (r.leave_acked) return;
  r.leave_acked = true;
  if (r.control) {
    r.control->send(wire::LeaveAck{});
    r.control->finish();
  }
  if (plan_.survives) carry_out(view_.gone(rank), rank, name(rank) + " left");
}

void Session::complete_if_all_left() {
  if (state_ != State::kActive) return;
  if (!std::ranges::all_of(ranks_, [](const RankState& r) { return r.leave_acked; })) return;
  completed_ = true;
  log::info("session " + to_string(id_) + " completed");
  begin_ending({});
}

void Session::on_abort(uint32_t rank, const wire::Abort& abort) {
  fail(is_known(abort.code) ? abort.code : Errc::kAborted, abort.rank != wire::kNoRank ? abort.rank : rank,
       name(rank) + ": " + abort.text);
}

void Session::control_lost(uint32_t rank, Errc reason) {
  RankState& r = ranks_[rank];
  r.control.reset();
  if (outlives_losses()) {
    r.control_down = conductor_.now();
    r.lost_reason = reason;
    return note_absence(rank);
  }
  if (state_ == State::kEnding || r.left) return;
  rank_lost(rank, reason, "control");
}

void Session::rank_lost(uint32_t rank, Errc reason, const char* which) {
  const std::string what = std::string(to_string(reason));
  if (is_bad_frame(reason)) {
    fail(reason, rank, name(rank) + " sent a bad frame on its " + which + " connection: " + what);
  } else {
    fail(Errc::kPeerLost, rank, name(rank) + " was lost: " + which + " connection " + what);
  }
}

void Session::on_event(const LaneEvent& event) {
  switch (event.kind) {
    case LaneEvent::Kind::kReleased: ++lanes_released_; return;
    case LaneEvent::Kind::kFailed: return fail(event.code, event.rank, event.text.data());
    case LaneEvent::Kind::kUnfit: return rank_unfit(event.rank, event.code);
    case LaneEvent::Kind::kClosed: {
      RankState& r = ranks_[event.rank];
      if (outlives_losses()) {
        r.lost_reason = event.code;
        // What swallows one connection shows to the rank only by the end of another.
        if (event.code == Errc::kTimeout && !r.left) close_rank(event.rank, Errc::kTimeout);
        return note_absence(event.rank);
      }
      if (state_ == State::kEnding || (r.left && event.code == Errc::kClosed)) return;
      if (is_bad_frame(event.code)) return rank_lost(event.rank, event.code, "lane");
      if (r.lost_at == 0) {
        r.lost_at = conductor_.now();
        r.lost_reason = event.code;
      }
      return;
    }
    case LaneEvent::Kind::kNone: return;
  }
}

void Session::tick(Nanos now) {
  const ReducerOptions& options = conductor_.options();
  if (state_ == State::kEnding) {
    if (now >= close_deadline_) {
      for (const auto& lane : lanes_) lane->close_now();
    }
    return;
  }
  if (state_ == State::kJoining && now >= join_deadline_) return join_deadline_passed();
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    RankState& r = ranks_[rank];
    if (r.left && !r.leave_acked && now >= r.leave_deadline) {
      acknowledge_leave(rank);
      complete_if_all_left();
    }
    if (state_ == State::kEnding) return;
    if (outlives_losses()) continue;  // watch_ranks()
    if (r.lost_at != 0 && !r.left && now - r.lost_at >= kReasonGrace)
      return rank_lost(rank, r.lost_reason, "lane");
    if (state_ == State::kActive && !r.left && now - r.last_heard >= options.peer_timeout) {
      return fail(Errc::kPeerLost, rank,
                  name(rank) + " was lost: silent for " +
                      std::to_string((now - r.last_heard) / kMillisecond) + " ms");
    }
  }
  ask_what_is_finished();
  if (outlives_losses()) watch_ranks(now);
  if (state_ == State::kActive && now >= next_heartbeat_) {
    next_heartbeat_ = now + options.heartbeat;
    const wire::Heartbeat beat = heartbeat();
    for (const RankState& r : ranks_) tell(r, beat);
  }
}

Nanos Session::waited_for(uint32_t rank) const noexcept {
  Nanos longest = 0;
  for (const auto& lane : lanes_) longest = std::max(longest, lane->waited_for(rank));
  return longest;
}

LaneSession::Missing Session::missing() const {
  LaneSession::Missing oldest;
  for (const auto& lane : lanes_) {
    const auto m = lane->missing();
    if (m.since != 0 && (oldest.since == 0 || m.since < oldest.since)) oldest = m;
  }
  return oldest;
}

wire::Heartbeat Session::heartbeat() {
  wire::Heartbeat beat;
  beat.count = ++heartbeat_count_;
  if (const auto m = missing(); m.since != 0) {
    beat.waited_ms =
        static_cast<uint32_t>(std::clamp<Nanos>((conductor_.now() - m.since) / kMillisecond, 0, UINT32_MAX));
    beat.missing_ranks = m.count;
    beat.missing.assign(m.ranks.begin(), m.ranks.begin() + std::min<size_t>(m.count, m.ranks.size()));
  }
  return beat;
}

void Session::tell(const RankState& r, const wire::Heartbeat& beat) {
  if (r.control && !r.left && !r.control->backed_up()) r.control->send(beat);
}

void Session::fail(Errc code, uint32_t rank, const std::string& text) {
  if (state_ == State::kEnding) return;
  if (counts_votes() && state_ == State::kJoining && !verdict_given_)
    return give_verdict_no(code, rank, text);
  log::warn("session " + to_string(id_) + " failed: " + std::string(to_string(code)) + ": " + text);
  wire::Abort abort;
  abort.code = code;
  abort.rank = rank;
  abort.text = text;
  if (state_ == State::kJoining) conductor_.keep_refusal(*this, {code, text}, rank);
  // A session that runs elsewhere does not end by this reducer's not coming to it.
  if (state_ == State::kJoining && came_later_) {
    conductor_.become_another_for(id_);
    return begin_ending({});
  }
  for (const RankState& r : ranks_) {
    if (r.control) r.control->send(abort);
  }
  begin_ending(wire::encode_body(abort));
}

void Session::begin_ending(const std::vector<std::byte>& abort_body) {
  state_ = State::kEnding;
  close_deadline_ = conductor_.now() + conductor_.linger();
  for (RankState& r : ranks_) {
    if (!r.control) continue;
    r.control->finish();
    r.control.reset();
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i]->set_ending(abort_body);
    conductor_.send_command(first_lane_ + static_cast<uint32_t>(i),
                            {.kind = LaneCommand::Kind::kEnd, .session = lanes_[i].get()});
  }
}

}  // namespace sluice::reducer
