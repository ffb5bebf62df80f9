// Class MonitoredSession handles the control connections of one session for HeartbeatMonitor: it sends
// heartbeats, detects silent reducers, decodes received frames, and sends ABORT and LEAVE.
//
// In a fault-tolerant session (protocol.md section 11) the loss of a control connection does not end the
// session. The listener learns of it and either replaces the connection or drops the reducer.
//
// All calls need the monitor's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "blackbox/event_source.h"
#include "core/units.h"
#include "gpu_client/engine/control/control_connection.h"
#include "gpu_client/engine/control/heartbeat_listener.h"
#include "transport/path_monitor.h"
#include "transport/tcp/poller.h"

namespace sluice::engine {

// The control connection to one reducer, with the intervals that the reducer has sent in JOINED.
struct ControlPeer {
  ControlConnection connection;
  uint64_t reducer = 0;  // its id
  Nanos heartbeat = kSecond;
  Nanos timeout = 10 * kSecond;                         // of silence
  std::shared_ptr<const transport::LanePaths> paths{};  // of its lane connections; may be null
};

class MonitoredSession {
 public:
  // `listener` and `poller` outlive the session. A connection's owner in the poller is the session's id
  // (generation) and the index of the peer.
  MonitoredSession(uint32_t id, HeartbeatListener& listener, bool fault_tolerant,
                   const blackbox::EventSource& blackbox, transport::tcp::Poller& poller)
      : id_(id), fault_tolerant_(fault_tolerant), blackbox_(blackbox), listener_(listener), poller_(poller) {}
  MonitoredSession(const MonitoredSession&) = delete;

  [[nodiscard]] HeartbeatListener& listener() const noexcept { return listener_; }
  // True after a loss or abort(). Received frames are then read and ignored.
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }
  [[nodiscard]] size_t peer_count() const noexcept { return peers_.size(); }

  void add_peer(ControlPeer peer, Nanos now);
  // For the rest see HeartbeatMonitor.
  void abort(Errc code, uint32_t rank, const std::string& text);
  void leave();
  template <typename M>
  void send(size_t peer, const M& message);
  void replace_connection(size_t peer, ControlConnection connection);
  void drop(size_t peer);
  [[nodiscard]] bool is_unresponsive(size_t peer) const;
  [[nodiscard]] size_t add_joining_peer(ControlPeer peer);
  void commit_peer(size_t peer, const wire::Commit& commit);

  // Receives the frames of a connection and sends its unsent bytes.
  void serve(size_t peer);
  // Serves the connections whose frames no event announces.
  void serve_pending();
  // Extends the timeouts by `time`, for which this process did not run. On the same machine, reducers did not
  // run either, and their heartbeats follow.
  void on_process_stall(Nanos now, Nanos time) noexcept;
  // Sends heartbeats that are due and ends connections that are silent for too long.
  void check_timers(Nanos now);
  // The time at which serve_pending() or check_timers() is due; INT64_MAX: never.
  [[nodiscard]] Nanos next_due() const;
  // Removes all connections from the poller. To be called before the destructor.
  void unwatch_all() noexcept;

 private:
  struct Peer {
    ControlConnection connection;
    uint64_t reducer = 0;
    Nanos heartbeat = 0;
    Nanos timeout = 0;
    Nanos last_heard = 0;
    Nanos next_heartbeat = 0;
    uint64_t heartbeats_sent = 0;
    bool lost = false;         // the connection is not read any more
    bool dropped = false;      // ... and will not be replaced
    bool send_failed = false;  // too many bytes are unsent: a message is missing, so the connection must end
    bool committed = true;     // false for an added reducer until the view contains it
    bool leave_acked = false;  // LEAVE_ACK received, or not needed any more
    bool has_pending = false;  // frames may be there that no event announces
    bool watched = false;
    bool watched_writable = false;
    bool reported_silent = false;  // in the black box
    WaitingStatus waiting{};
    std::shared_ptr<const transport::LanePaths> paths{};
    transport::PathReport reported_path{};  // by its heartbeats: packets that it sent
    transport::PathWatch path_watch{};
  };

  void check_sent(size_t peer, Status status);
  template <typename M>
  void forward(size_t peer, const ControlConnection::Frame& frame,
               void (HeartbeatListener::*to)(size_t, const M&) noexcept);
  void handle_frame(size_t peer, const ControlConnection::Frame& frame);
  void handle_lost(size_t peer, Status status);
  void end_session(size_t source, Errc code, uint32_t rank, const std::string& abort_text,
                   const std::string& text);
  void send_abort(size_t except, Errc code, uint32_t rank, const std::string& text);
  void send_heartbeat(size_t peer);
  void check_path(Peer& p, Nanos now);
  void note_silence(Peer& p, Nanos now) const noexcept;
  void report_waiting();
  void check_left();
  void update_watch(size_t peer) noexcept;

  const uint32_t id_;
  const bool fault_tolerant_;
  const blackbox::EventSource blackbox_;
  HeartbeatListener& listener_;
  transport::tcp::Poller& poller_;
  std::vector<Peer> peers_;
  bool leaving_ = false;
  bool ended_ = false;
};

template <typename M>
void MonitoredSession::send(size_t peer, const M& message) {
  if (!peers_[peer].lost) check_sent(peer, peers_[peer].connection.send(message));
}

}  // namespace sluice::engine
