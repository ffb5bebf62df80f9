// Ranks that leave a session, and the completion of a session whose ranks have all left (protocol.md section
// 10).
#include <algorithm>

#include "reducer/control/control_loop.h"
#include "reducer/control/session/session.h"

namespace sluice::reducer {

void Session::on_heartbeat(Connection& /*from*/, uint32_t rank, const wire::Heartbeat& beat) {
  RankState& r = ranks_[rank];
  record_heartbeat(rank, beat.count);
  add_reported_path(rank, beat);
  if (beat.finished <= r.finished) return;
  r.finished = beat.finished;
  if (state_ == State::kActive && has_pending_leave()) acknowledge_leaves();
}

void Session::on_leave(Connection& from, uint32_t rank, const wire::Leave& leave) {
  RankState& r = ranks_[rank];
  if (state_ == State::kActive && r.has_left && plan_.fault_tolerant) {  // repeated on a resumed connection
    if (!r.leave_acked) return;
    from.send(wire::LeaveAck{});
    return from.finish();
  }
  if (state_ != State::kActive || r.has_left) return from.close(Errc::kUnexpectedMessage);
  const bool has_requested = has_pending_leave();  // tick() requests again
  r.finished = std::max(r.finished, leave.finished);
  begin_leave(rank);
  acknowledge_leaves();
  if (!has_requested) request_progress();
}

void Session::begin_leave(uint32_t rank) {
  RankState& r = ranks_[rank];
  r.has_left = true;
  blackbox_.record(blackbox::EventKind::kRankLeft, {.peer = rank});
  r.leave_deadline = loop_.now() + loop_.options().linger_timeout;
  send_to_lanes(LaneCommand::Kind::kRankLeft, rank);
}

bool Session::has_pending_leave() const {
  return std::ranges::any_of(ranks_, [](const RankState& r) { return r.has_left && !r.leave_acked; });
}

// A rank may disconnect when no other rank needs its results: each one has as many results, leaves too, or is
// gone.
void Session::acknowledge_leaves() {
  uint64_t finished_by_all = UINT64_MAX;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& r = ranks_[rank];
    if (!r.has_left && !is_gone(rank)) finished_by_all = std::min(finished_by_all, r.finished);
  }
  for (uint32_t rank = 0; rank < ranks_.size() && state_ == State::kActive; ++rank) {
    const RankState& r = ranks_[rank];
    if (r.has_left && !r.leave_acked && r.finished <= finished_by_all) acknowledge_leave(rank);
  }
  complete_if_all_left();
}

// Asks the ranks that, by their last report, lack results that a leaving rank has.
void Session::request_progress() {
  if (state_ != State::kActive || !has_pending_leave()) return;
  uint64_t expected = 0;
  for (const RankState& r : ranks_) {
    if (r.has_left && !r.leave_acked) expected = std::max(expected, r.finished);
  }
  wire::Heartbeat beat = next_heartbeat();
  beat.answer = 1;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].finished < expected) send_heartbeat(rank, beat);
  }
}

void Session::acknowledge_leave(uint32_t rank) {
  RankState& r = ranks_[rank];
  if (r.leave_acked) return;
  r.leave_acked = true;
  r.reported_path.stalled = 0;
  if (r.control) {
    r.control->send(wire::LeaveAck{});
    r.control->finish();
  }
  if (plan_.fault_tolerant) apply(view_.on_rank_left(rank), rank, name(rank) + " left");
}

void Session::complete_if_all_left() {
  if (state_ != State::kActive) return;
  if (!std::ranges::all_of(ranks_, [](const RankState& r) { return r.leave_acked; })) return;
  is_completed_ = true;
  blackbox_.record(blackbox::EventKind::kEnded, {.peer = wire::kNoRank});
  log_info(" completed");
  begin_ending({});
}

}  // namespace sluice::reducer
