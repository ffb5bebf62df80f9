#include "reducer/control/session/session.h"

#include <algorithm>
#include <utility>

#include "reducer/control/control_loop.h"

namespace sluice::reducer {
namespace {

// How long a closed lane connection waits for its reason on the control connection before the rank counts as
// lost.
constexpr Nanos kReasonGrace = 200 * kMillisecond;

using blackbox::EventKind;

// Of this many heartbeats, one is recorded on each side: `sluice blackbox` compares the hosts' clocks by
// them.
constexpr uint64_t kRecordedHeartbeats = 8;
// A rank that others wait for this long is an event.
constexpr Nanos kLate = kSecond;

// The rank, or the kernel of its host, ended the connection. After other ends the rank may not know yet.
bool is_closed_by_peer(Errc reason) {
  return reason == Errc::kClosed || reason == Errc::kReset;
}

}  // namespace

std::string Session::name(uint32_t rank) const {
  return "rank " + std::to_string(rank) + (ranks_[rank].peer.empty() ? "" : " (" + ranks_[rank].peer + ")");
}

std::string Session::log_name() const {
  return "session " + to_string(id_).substr(0, 8);
}

void Session::log_info(const std::string& text) const {
  loop_.session_log().info(job_, ranks_[first_rank_].peer, log_name() + text);
}

void Session::log_warning(const std::string& text) const {
  loop_.session_log().warn(job_, ranks_[first_rank_].peer, log_name() + text);
}

void Session::write_audit_line(std::string_view result) const {
  AuditLog::Session line{.job = job_, .tenant = tenant_, .peers = {}, .ranks = plan_.ranks};
  for (const RankState& r : ranks_) {
    if (!r.peer.empty()) line.peers.push_back(r.peer);
    if (r.control && r.control->pool_key() == Connection::PoolKey::kOld) ++line.with_old_key;
  }
  loop_.audit().write_session(line, result);
}

const char* Session::state_name() const noexcept {
  switch (state_) {
    case State::kJoining: return "joining";
    case State::kActive: return "active";
    case State::kEnding: return "ending";
  }
  return "?";
}

// ---- losses ----

void Session::record_activity(uint32_t rank) {
  ranks_[rank].last_heard = loop_.now();
}

void Session::on_abort(Connection& /*from*/, uint32_t rank, const wire::Abort& abort) {
  fail(is_known(abort.code) ? abort.code : Errc::kAborted, abort.rank != wire::kNoRank ? abort.rank : rank,
       name(rank) + ": " + abort.text);
}

void Session::on_control_lost(uint32_t rank, Errc reason) {
  loop_.sessions().wake(*this);
  RankState& r = ranks_[rank];
  r.control.reset();
  r.reported_path.stalled = 0;
  if (can_recover()) {
    r.control_lost_at = loop_.now();
    r.lost_reason = reason;
    r.may_be_unaware |= !is_closed_by_peer(reason);
    return log_absence(rank);
  }
  if (state_ == State::kEnding || r.has_left) return;
  blackbox_.record(EventKind::kConnectionLost,
                   {.peer = rank, .a = blackbox::kControlConnection, .code = reason});
  on_rank_lost(rank, reason, "control");
}

void Session::on_rank_lost(uint32_t rank, Errc reason, const char* connection) {
  const std::string reason_name(to_string(reason));
  if (is_bad_frame(reason)) {
    fail(reason, rank, name(rank) + " sent a bad frame on its " + connection + " connection: " + reason_name);
  } else {
    fail(Errc::kPeerLost, rank, name(rank) + " lost: " + connection + " connection " + reason_name);
  }
}

void Session::record_lost_lane(const LaneEvent& event) const noexcept {
  const auto is_its = [&event](const auto& lane) { return lane.get() == event.session; };
  const auto lane = static_cast<uint32_t>(std::ranges::find_if(lanes_, is_its) - lanes_.begin());
  blackbox_.record(EventKind::kConnectionLost,
                   {.peer = event.rank, .a = blackbox::lane_number(lane), .code = event.code});
}

void Session::on_lane_event(const LaneEvent& event) {
  switch (event.kind) {
    case LaneEvent::Kind::kReleased: ++lanes_released_; return;
    case LaneEvent::Kind::kFailed: return fail(event.code, event.rank, event.text.data());
    case LaneEvent::Kind::kTooManyBadFrames: return exclude_rank(event.rank, event.code);
    case LaneEvent::Kind::kClosed: {
      RankState& r = ranks_[event.rank];
      if (can_recover()) {
        r.lost_reason = event.code;
        r.may_be_unaware |= !is_closed_by_peer(event.code);
        // The rank notices a connection that drops its packets silently only when another one closes.
        if (event.code == Errc::kTimeout && !r.has_left) close_rank(event.rank, Errc::kTimeout);
        return log_absence(event.rank);
      }
      if (state_ == State::kEnding || (r.has_left && event.code == Errc::kClosed)) return;
      record_lost_lane(event);
      if (is_bad_frame(event.code)) return on_rank_lost(event.rank, event.code, "lane");
      if (r.lane_closed_at == 0) {
        r.lane_closed_at = loop_.now();
        r.lost_reason = event.code;
      }
      return;
    }
    case LaneEvent::Kind::kNone: return;
  }
}

void Session::tick(Nanos now) {
  log_findings(now);
  if (state_ == State::kEnding) {
    if (now >= close_deadline_) {
      for (const auto& lane : lanes_) lane->close_now();
    }
    return;
  }
  if (state_ == State::kJoining && now >= join_deadline_) return on_join_timeout();
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    RankState& r = ranks_[rank];
    if (r.has_left && !r.leave_acked && now >= r.leave_deadline) {
      acknowledge_leave(rank);
      complete_if_all_left();
    }
    if (state_ == State::kEnding) return;
    if (can_recover()) continue;  // check_absences()
    check_losses(rank, now);
    if (state_ == State::kEnding) return;
  }
  if (can_recover() && has_pending_leave()) acknowledge_leaves();
  if (state_ == State::kEnding) return;
  request_progress();
  if (can_recover()) check_absences(now);
  if (state_ == State::kActive && now >= next_heartbeat_at_) send_heartbeats(now);
}

bool Session::is_quiet() const {
  if (view_.is_removed()) return false;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& r = ranks_[rank];
    if (r.has_left) {
      if (!r.leave_acked) return false;
      continue;
    }
    if (r.lane_closed_at != 0 || r.reported_absence != 0) return false;
    if (can_recover() && absent_since(rank) != 0) return false;
  }
  return true;
}

Nanos Session::next_tick() const {
  if (state_ == State::kEnding) return close_deadline_;
  if (!is_quiet()) return 0;
  if (state_ == State::kJoining) return join_deadline_;
  Nanos due = next_heartbeat_at_;
  for (const RankState& r : ranks_) {
    if (!r.has_left) due = std::min(due, r.last_heard + loop_.options().peer_timeout);
  }
  return due;
}

void Session::check_losses(uint32_t rank, Nanos now) {
  const RankState& r = ranks_[rank];
  if (r.has_left) return;
  if (r.lane_closed_at != 0 && now - r.lane_closed_at >= kReasonGrace)
    return on_rank_lost(rank, r.lost_reason, "lane");
  if (state_ == State::kActive && now - r.last_heard >= loop_.options().peer_timeout) {
    blackbox_.record(EventKind::kPeerSilent,
                     {.peer = rank, .a = static_cast<uint64_t>((now - r.last_heard) / kMillisecond)});
    fail(Errc::kPeerLost, rank,
         name(rank) + " lost: no message for " + std::to_string((now - r.last_heard) / kMillisecond) + " ms");
  }
}

// ---- heartbeats ----

LaneSession::MissingRanks Session::missing() const {
  LaneSession::MissingRanks oldest;
  for (const auto& lane : lanes_) {
    const auto m = lane->missing();
    if (m.since != 0 && (oldest.since == 0 || m.since < oldest.since)) oldest = m;
  }
  return oldest;
}

Nanos Session::waited_for(uint32_t rank) const noexcept {
  Nanos longest = 0;
  for (const auto& lane : lanes_) longest = std::max(longest, lane->waited_for(rank));
  return longest;
}

wire::Heartbeat Session::next_heartbeat() {
  wire::Heartbeat beat;
  beat.count = ++heartbeat_count_;
  if (beat.count % kRecordedHeartbeats == 1)
    blackbox_.record_frequent(EventKind::kHeartbeatSent, {.a = beat.count});
  if (const auto m = missing(); m.since != 0) {
    beat.waited_ms =
        static_cast<uint32_t>(std::clamp<Nanos>((loop_.now() - m.since) / kMillisecond, 0, UINT32_MAX));
    beat.missing_ranks = m.count;
    beat.missing.assign(m.ranks.begin(), m.ranks.begin() + std::min<size_t>(m.count, m.ranks.size()));
  }
  return beat;
}

void Session::record_heartbeat(uint32_t rank, uint64_t count) const noexcept {
  if (count % kRecordedHeartbeats == 1)
    blackbox_.record_frequent(EventKind::kHeartbeatReceived, {.peer = rank, .a = count});
}

void Session::send_heartbeats(Nanos now) {
  next_heartbeat_at_ = now + loop_.options().heartbeat;
  wire::Heartbeat beat = next_heartbeat();
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) send_heartbeat(rank, beat);
  record_late_rank();
  check_paths(now);
}

void Session::record_late_rank() noexcept {
  const auto m = missing();
  const bool is_late = m.since != 0 && m.count > 0 && loop_.now() - m.since >= kLate;
  const uint32_t late = is_late ? m.ranks.front() : wire::kNoRank;
  const uint32_t before = std::exchange(late_rank_, late);
  if (late == before) return;
  if (before != wire::kNoRank) blackbox_.record(EventKind::kRankOnTime, {.peer = before});
  if (!is_late) return;
  const auto ms = static_cast<uint64_t>((loop_.now() - m.since) / kMillisecond);
  blackbox_.record(EventKind::kRankLate, {.peer = late, .a = ms, .b = m.count});
}

void Session::send_heartbeat(uint32_t rank, wire::Heartbeat& beat) const {
  const RankState& r = ranks_[rank];
  if (!r.control || r.has_left || r.control->is_backed_up()) return;
  const transport::PathReport path = sent_path(rank);
  beat.packets = path.packets;
  beat.lost_packets = path.lost_packets;
  beat.stalled_ms = static_cast<uint32_t>(std::min<Nanos>(path.stalled / kMillisecond, UINT32_MAX));
  r.control->send(beat);
}

// ---- the end ----

void Session::send_to_lanes(LaneCommand::Kind kind, Rank rank) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    loop_.mailbox().send(first_lane_ + static_cast<uint32_t>(i),
                         {.kind = kind, .session = lanes_[i].get(), .rank = rank});
  }
}

void Session::fail(Errc code, uint32_t rank, const std::string& text) {
  if (state_ == State::kEnding) return;
  if (decides_join() && state_ == State::kJoining && !has_verdict_) return refuse_join(code, rank, text);
  const std::string shown(wire::whole_text(text).value_or(text));
  log_warning(" failed: " + std::string(to_string(code)) + ": " + shown);
  // A rank of the session that this one is a part of is none here.
  record_failure(code, rank < ranks_.size() ? rank : wire::kNoRank, shown);
  const wire::Abort abort{{.code = code, .rank = rank, .text = text}};
  if (state_ == State::kJoining) {
    loop_.sessions().outcomes().store_refusal({job_, id_}, {code, text}, rank, joined_ranks(), loop_.now());
  }
  // The session runs on other reducers and does not end because this one could not join.
  if (state_ == State::kJoining && joined_running_session_) {
    loop_.sessions().replace_id_for(id_);
    return begin_ending({});
  }
  send_all(abort);
  begin_ending(wire::encode_body(abort));
}

void Session::record_failure(Errc code, uint32_t rank, const std::string& text) noexcept {
  blackbox_.record(EventKind::kEnded, {.peer = rank, .code = code}, text);
  loop_.dump().request("a session failed");
}

void Session::begin_ending(const std::vector<std::byte>& abort_body) {
  if (state_ == State::kJoining) write_audit_line("did not start");
  state_ = State::kEnding;
  loop_.sessions().note_ending(*this);
  close_deadline_ = loop_.now() + loop_.linger();
  for (RankState& r : ranks_) {
    if (!r.control) continue;
    r.control->finish();
    r.control.reset();
  }
  for (const auto& lane : lanes_) lane->set_end_message(abort_body);
  send_to_lanes(LaneCommand::Kind::kEnd);
}

}  // namespace sluice::reducer
