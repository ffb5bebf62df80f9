#include "gpu_client/engine/control/monitored_session.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"

namespace sluice::engine {
namespace {

constexpr size_t kNoPeer = ~size_t{0};
// Of this many heartbeats, one is recorded on each side: `sluice blackbox` compares the hosts' clocks by
// them.
constexpr uint64_t kRecordedHeartbeats = 8;
// Frames received from one connection in a row, so that a busy connection does not delay the others.
constexpr int kFramesInARow = 64;

}  // namespace

void MonitoredSession::add_peer(ControlPeer peer, Nanos now) {
  peers_.push_back({.connection = std::move(peer.connection),
                    .reducer = peer.reducer,
                    .heartbeat = peer.heartbeat,
                    .timeout = peer.timeout,
                    .last_heard = now,
                    .next_heartbeat = now,
                    .paths = std::move(peer.paths)});
  peers_.back().has_pending = peers_.back().connection.has_pending();
  update_watch(peers_.size() - 1);
}

void MonitoredSession::abort(Errc code, uint32_t rank, const std::string& text) {
  ended_ = true;
  send_abort(kNoPeer, code, rank, text);
}

void MonitoredSession::leave() {
  leaving_ = true;
  const wire::Leave leave{.finished = listener_.first_unfinished()};
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    if (fault_tolerant_) {
      if (p.committed) send(i, leave);
    } else if (!p.lost && !p.connection.send(leave).ok()) {
      p.leave_acked = true;
    }
  }
  check_left();
  poller_.wake();
}

void MonitoredSession::check_sent(size_t peer, Status status) {
  // receive() reports a broken connection, after the reducer's last frames. But nothing reports that a
  // reducer with too many unread bytes has missed this message.
  if (status == Errc::kWouldBlock) {
    peers_[peer].send_failed = true;
    poller_.wake();
  }
  update_watch(peer);
}

void MonitoredSession::replace_connection(size_t peer, ControlConnection connection) {
  if (peer >= peers_.size()) return;
  Peer& p = peers_[peer];
  if (p.dropped) return;
  if (!p.lost) poller_.remove(p.connection.fd());
  p.connection = std::move(connection);
  p.lost = p.send_failed = p.watched = false;
  p.has_pending = p.connection.has_pending();
  p.last_heard = p.next_heartbeat = monotonic_now();
  p.waiting = {};
  update_watch(peer);
  if (leaving_ && p.committed && !p.leave_acked)
    send(peer, wire::Leave{.finished = listener_.first_unfinished()});
  poller_.wake();
}

void MonitoredSession::drop(size_t peer) {
  if (peer >= peers_.size()) return;
  Peer& p = peers_[peer];
  if (p.dropped) return;
  if (!p.lost) poller_.remove(p.connection.fd());
  p.connection.close();
  p.lost = p.dropped = true;
  p.waiting = {};
  check_left();
}

bool MonitoredSession::is_unresponsive(size_t peer) const {
  if (peer >= peers_.size()) return false;
  const Peer& p = peers_[peer];
  return p.lost || monotonic_now() - p.last_heard >= std::max(p.timeout / 2, 2 * p.heartbeat);
}

size_t MonitoredSession::add_joining_peer(ControlPeer peer) {
  add_peer(std::move(peer), monotonic_now());
  peers_.back().committed = false;
  poller_.wake();
  return peers_.size() - 1;
}

void MonitoredSession::commit_peer(size_t peer, const wire::Commit& commit) {
  if (peer >= peers_.size()) return;
  peers_[peer].committed = true;
  send(peer, commit);
  if (leaving_) send(peer, wire::Leave{.finished = listener_.first_unfinished()});
}

void MonitoredSession::unwatch_all() noexcept {
  for (const Peer& p : peers_) poller_.remove(p.connection.fd());
}

Nanos MonitoredSession::next_due() const {
  Nanos due = INT64_MAX;
  for (const Peer& p : peers_) {
    if (!p.lost && p.has_pending) return 0;
    if (!p.lost && !ended_) due = std::min({due, p.next_heartbeat, p.last_heard + p.timeout});
  }
  return due;
}

void MonitoredSession::serve_pending() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].has_pending) serve(i);
  }
}

void MonitoredSession::serve(size_t peer) {
  Peer& p = peers_[peer];
  p.has_pending = false;
  for (int i = 0; !p.lost; ++i) {
    if (i == kFramesInARow) {
      p.has_pending = p.connection.has_pending();
      break;
    }
    ControlConnection::Frame frame;
    const Status status = p.connection.receive(frame);
    if (status.code() == Errc::kWouldBlock) break;
    if (!status.ok()) {
      handle_lost(peer, status);
      return;
    }
    p.last_heard = monotonic_now();
    if (std::exchange(p.reported_silent, false))
      blackbox_.record(blackbox::EventKind::kPeerHeard, {.peer = p.reducer, .at = p.last_heard});
    if (!ended_) handle_frame(peer, frame);
  }
  if (p.lost) return;
  static_cast<void>(p.connection.flush());  // receive() reports a broken connection
  update_watch(peer);
}

template <typename M>
void MonitoredSession::forward(size_t peer, const ControlConnection::Frame& frame,
                               void (HeartbeatListener::*to)(size_t, const M&) noexcept) {
  if (!fault_tolerant_) return handle_lost(peer, Errc::kUnexpectedMessage);
  M message;
  if (const Status s = wire::decode_body(frame.body, message); !s.ok()) return handle_lost(peer, s);
  (listener_.*to)(peer, message);
}

void MonitoredSession::report_waiting() {
  const auto longest = std::max_element(peers_.begin(), peers_.end(), [](const Peer& a, const Peer& b) {
    return a.waiting.waited_ms < b.waiting.waited_ms;
  });
  listener_.on_waiting(longest->waiting);
}

void MonitoredSession::handle_frame(size_t peer, const ControlConnection::Frame& frame) {
  Peer& p = peers_[peer];
  switch (frame.header.type) {
    case wire::FrameType::kHeartbeat: {
      wire::Heartbeat heartbeat;
      if (const Status s = wire::decode_body(frame.body, heartbeat); !s.ok()) return handle_lost(peer, s);
      if (heartbeat.count % kRecordedHeartbeats == 1)
        blackbox_.record(blackbox::EventKind::kHeartbeatReceived, {.peer = p.reducer, .a = heartbeat.count});
      p.waiting = {.missing_ranks = heartbeat.missing_ranks,
                   .first_rank = heartbeat.missing.empty() ? wire::kNoRank : heartbeat.missing.front(),
                   .waited_ms = heartbeat.waited_ms};
      p.reported_path = {.packets = heartbeat.packets.value_or(0),
                         .lost_packets = heartbeat.lost_packets.value_or(0),
                         .stalled = Nanos{heartbeat.stalled_ms.value_or(0)} * kMillisecond};
      if (heartbeat.answer != 0) send_heartbeat(peer);
      return report_waiting();
    }
    case wire::FrameType::kLeaveAck: {
      p.leave_acked = true;
      return check_left();
    }
    case wire::FrameType::kAbort: {
      wire::Abort abort;
      if (const Status s = wire::decode_body(frame.body, abort); !s.ok()) return handle_lost(peer, s);
      const std::string text = replace_control_characters(abort.text);
      return end_session(peer, code_from_peer(abort.code), abort.rank, text,
                         p.connection.name() + " ended the session: " + text);
    }
    case wire::FrameType::kViewQuery: return forward(peer, frame, &HeartbeatListener::on_view_query);
    case wire::FrameType::kRateChanges: return forward(peer, frame, &HeartbeatListener::on_rate_changes);
    case wire::FrameType::kViewCommit: return forward(peer, frame, &HeartbeatListener::on_view_commit);
    case wire::FrameType::kDrainNotice: return forward(peer, frame, &HeartbeatListener::on_drain_notice);
    default: return handle_lost(peer, Errc::kUnexpectedMessage);
  }
}

void MonitoredSession::handle_lost(size_t peer, Status status) {
  Peer& p = peers_[peer];
  poller_.remove(p.connection.fd());
  p.lost = true;
  if (ended_) return;
  if (leaving_ && (!fault_tolerant_ || p.leave_acked)) {
    // The session needs nothing more from this reducer, and the reducer cannot report an error any more.
    p.leave_acked = true;
    return check_left();
  }
  std::string cause = "malformed frame on the control connection: " + std::string(to_string(status.code()));
  Errc code = status.code();
  if (code == Errc::kClosed || code == Errc::kReset) {
    cause = code == Errc::kClosed ? "control connection closed by the reducer" : "control connection reset";
    code = Errc::kReducerLost;
  } else if (code == Errc::kTimeout) {
    cause = "no heartbeat for " + std::to_string(p.timeout / kMillisecond) + " ms";
    code = Errc::kReducerLost;
  }
  blackbox_.record(blackbox::EventKind::kConnectionLost,
                   {.peer = p.reducer, .a = blackbox::kControlConnection, .code = status.code()},
                   status.code() == Errc::kTimeout ? cause : std::string());
  if (fault_tolerant_) {
    p.connection.close();
    p.waiting = {};
    report_waiting();
    return listener_.on_control_lost(peer, status.code(), p.connection.name() + ": " + cause);
  }
  const std::string text = p.connection.name() + " lost: " + cause;
  end_session(peer, code, wire::kNoRank, text, text);
}

void MonitoredSession::end_session(size_t source, Errc code, uint32_t rank, const std::string& abort_text,
                                   const std::string& text) {
  ended_ = true;
  send_abort(source, code, rank, abort_text);
  listener_.on_session_lost(code, text, rank);
}

void MonitoredSession::send_abort(size_t except, Errc code, uint32_t rank, const std::string& text) {
  wire::Abort abort;
  abort.code = code_for_peer(code);
  abort.rank = rank;
  abort.text = text;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    if (i == except || p.lost) continue;
    static_cast<void>(p.connection.send(abort));
    p.connection.shutdown();
  }
}

void MonitoredSession::on_process_stall(Nanos now, Nanos time) noexcept {
  blackbox_.record(blackbox::EventKind::kStalled,
                   {.a = static_cast<uint64_t>(time / kMillisecond), .at = now - time});
  for (Peer& p : peers_) p.last_heard = std::min(now, p.last_heard + time);
}

void MonitoredSession::check_timers(Nanos now) {
  for (size_t i = 0; i < peers_.size() && !ended_; ++i) {
    Peer& p = peers_[i];
    if (p.lost) continue;
    if (p.send_failed) {
      serve(i);  // the reducer's reason may have been received
      if (!p.lost && !ended_) handle_lost(i, Errc::kReset);
      continue;
    }
    if (now - p.last_heard >= p.timeout) {
      // This thread may have been suspended, so read before deciding.
      serve(i);
      if (!p.lost && !ended_ && now - p.last_heard >= p.timeout) handle_lost(i, Errc::kTimeout);
      continue;
    }
    note_silence(p, now);
    if (now < p.next_heartbeat) continue;
    p.next_heartbeat = now + p.heartbeat;
    send_heartbeat(i);
    check_path(p, now);
  }
}

// While the reducer's heartbeats arrive, the host is alive: only what fills packets does not get through.
void MonitoredSession::check_path(Peer& p, Nanos now) {
  if (!p.paths) return;
  const transport::PathReport own = transport::sum(*p.paths, now);
  transport::PathReport total = own;
  total += p.reported_path;
  if (const auto text = p.path_watch.add_losses(total, now))
    listener_.on_path_warning(p.connection.name() + ": " + *text);
  if (now - p.last_heard > 2 * p.heartbeat || !p.path_watch.is_new_stall(total.stalled, now)) return;
  const std::string seconds = std::to_string(total.stalled / kSecond) + " s";
  listener_.on_path_warning(
      (own.stalled == total.stalled
           ? "no byte acknowledged by " + p.connection.name() + " for " + seconds
           : p.connection.name() + " sends data that does not arrive, for " + seconds) +
      ", but its heartbeats arrive: check the MTU of the path" +
      (own.mtu == 0 ? "" : " (this host sends packets of up to " + std::to_string(own.mtu) + " bytes)"));
}

// As is_unresponsive().
void MonitoredSession::note_silence(Peer& p, Nanos now) const noexcept {
  if (p.reported_silent || now - p.last_heard < std::max(p.timeout / 2, 2 * p.heartbeat)) return;
  p.reported_silent = true;
  const auto ms = static_cast<uint64_t>((now - p.last_heard) / kMillisecond);
  blackbox_.record(blackbox::EventKind::kPeerSilent, {.peer = p.reducer, .a = ms});
}

void MonitoredSession::send_heartbeat(size_t peer) {
  Peer& p = peers_[peer];
  if ((p.heartbeats_sent + 1) % kRecordedHeartbeats == 1)
    blackbox_.record(blackbox::EventKind::kHeartbeatSent, {.peer = p.reducer, .a = p.heartbeats_sent + 1});
  wire::Heartbeat heartbeat{
      .count = ++p.heartbeats_sent, .missing = {}, .finished = listener_.first_unfinished()};
  if (p.paths) {
    const transport::PathReport path = transport::sum(*p.paths, monotonic_now());
    heartbeat.packets = path.packets;
    heartbeat.lost_packets = path.lost_packets;
    heartbeat.stalled_ms = static_cast<uint32_t>(std::min<Nanos>(path.stalled / kMillisecond, UINT32_MAX));
  }
  // A full socket needs no handling: a reducer that does not read will also be silent.
  static_cast<void>(p.connection.send(heartbeat));
  update_watch(peer);
}

void MonitoredSession::check_left() {
  if (!leaving_) return;
  // In a fault-tolerant session a reducer whose connection is only broken still has to acknowledge.
  const bool all = std::all_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
    return p.leave_acked || !p.committed || (fault_tolerant_ ? p.dropped : p.lost);
  });
  if (all) listener_.on_left();
}

void MonitoredSession::update_watch(size_t peer) noexcept {
  Peer& p = peers_[peer];
  const bool writable = p.connection.has_unsent();
  if (p.watched && writable == p.watched_writable) return;
  const Handle owner{.index = static_cast<uint32_t>(peer), .generation = id_};
  const uint32_t events = EPOLLIN | (writable ? EPOLLOUT : 0u);
  if (p.watched) {
    poller_.modify(p.connection.fd(), owner, events);
  } else {
    // Fails only for lack of memory. The connection is then still served by timer.
    static_cast<void>(poller_.add(p.connection.fd(), owner, events));
  }
  p.watched = true;
  p.watched_writable = writable;
}

}  // namespace sluice::engine
