// Class HeartbeatMonitor keeps the control connections of all sessions of the process alive: it sends and
// receives heartbeats, detects silent reducers, and receives ABORT, LEAVE_ACK and view changes. Its thread
// runs even if no thread makes progress on the data. The first session starts the monitor and the last
// one stops it.
//
// fork(): the monitor's thread does not exist in a child. Sessions created before the fork belong to the
// parent. A child that creates a session starts its own monitor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "blackbox/event_source.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/control/heartbeat_listener.h"
#include "gpu_client/engine/control/monitored_session.h"
#include "transport/tcp/poller.h"

namespace sluice::engine {

class HeartbeatMonitor {
 public:
  // The monitor of this process. It lives as long as a caller holds it.
  [[nodiscard]] static Result<std::shared_ptr<HeartbeatMonitor>> acquire();
  ~HeartbeatMonitor();
  HeartbeatMonitor(const HeartbeatMonitor&) = delete;

  // All calls below: any thread, but never from within a call of a listener. Exception: on_progress_due() may
  // make all of them but remove(), which waits for it.

  // Takes over the control connections of a committed session. Returns the session's id for the calls below.
  // `listener` must live until remove(). `blackbox` records what the monitor sees.
  [[nodiscard]] uint32_t add(std::vector<ControlPeer> peers, HeartbeatListener& listener,
                             bool fault_tolerant = false, const blackbox::EventSource& blackbox = {});
  // Sends ABORT to every reducer, once; no effect after a loss. Does not call the listener.
  void abort(uint32_t session, Errc code, uint32_t rank, const std::string& text) {
    on_active(session, [&](MonitoredSession& s) { s.abort(code, rank, text); });
  }
  // Sends LEAVE to every reducer; on_left() follows.
  void leave(uint32_t session) {
    on_active(session, [](MonitoredSession& s) { s.leave(); });
  }
  // Closes the connections. The listener is not called after this returns.
  void remove(uint32_t session);

  // The calls below are for fault-tolerant sessions.

  // Sends a message to one reducer, or to all reducers that are connected. The session must repeat messages
  // that a reducer has missed after replace_connection(). A reducer that reads nothing loses its connection.
  template <typename M>
  void send(uint32_t session, size_t peer, const M& message) {
    on_active(session, [&](MonitoredSession& s) {
      if (peer < s.peer_count()) s.send(peer, message);
    });
  }
  template <typename M>
  void send_all(uint32_t session, const M& message) {
    on_active(session, [&](MonitoredSession& s) {
      for (size_t i = 0; i < s.peer_count(); ++i) s.send(i, message);
    });
  }
  // Installs a new connection to the reducer; an existing one is dropped. Sends LEAVE again if it is due. No
  // effect for a dropped peer and after the session's end.
  void replace_connection(uint32_t session, size_t peer, ControlConnection connection) {
    on_active(session, [&](MonitoredSession& s) { s.replace_connection(peer, std::move(connection)); });
  }
  // Removes the reducer from the session: closes its connection and needs no LEAVE_ACK from it.
  void drop(uint32_t session, size_t peer) {
    on_active(session, [&](MonitoredSession& s) { s.drop(peer); });
  }
  // True when the reducer's connection has ended, or was silent for half its timeout and at least two
  // heartbeats. Another rank may then have found the reducer lost already.
  [[nodiscard]] bool is_unresponsive(uint32_t session, size_t peer) {
    return on_active(session, [&](MonitoredSession& s) { return s.is_unresponsive(peer); });
  }
  // Adds the connection of a reducer that is joining. Returns nullopt after the session's end.
  [[nodiscard]] std::optional<size_t> add_joining_peer(uint32_t session, ControlPeer peer) {
    return on_active(session,
                     [&](MonitoredSession& s) { return std::optional(s.add_joining_peer(std::move(peer))); });
  }
  // Makes the added reducer part of the session: sends COMMIT, and LEAVE if it is due.
  void commit_peer(uint32_t session, size_t peer, const wire::Commit& commit) {
    on_active(session, [&](MonitoredSession& s) { s.commit_peer(peer, commit); });
  }

 private:
  HeartbeatMonitor() = default;
  [[nodiscard]] Result<void> start();
  void run();
  void run_turn();
  // Calls on_progress_due() of every listener.
  void run_progress();
  // Returns call(session) with the lock held; a default value if the session has ended.
  template <typename Call>
  std::invoke_result_t<Call, MonitoredSession&> on_active(uint32_t session, Call&& call) {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(session);
    if (found != sessions_.end() && !found->second.has_ended()) return call(found->second);
    return std::invoke_result_t<Call, MonitoredSession&>();
  }
  [[nodiscard]] Nanos next_due() const;  // lock held

  std::unique_ptr<transport::tcp::Poller> poller_;
  std::thread thread_;
  std::mutex progress_mutex_;  // held during run_progress(); locked before mutex_
  std::mutex mutex_;
  bool stopping_ = false;
  uint32_t next_id_ = 1;
  std::map<uint32_t, MonitoredSession> sessions_;
};

}  // namespace sluice::engine
