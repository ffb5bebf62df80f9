// Class HeartbeatMonitor keeps the control connections of all sessions of the process alive: it sends and
// receives heartbeats, detects silent reducers, and receives ABORT, LEAVE_ACK and view changes. Its thread
// runs whichever thread makes progress on a session's data. The first session starts the monitor and the last
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
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/control/control_poller.h"
#include "gpu_client/engine/control/heartbeat_listener.h"
#include "gpu_client/engine/control/monitored_session.h"

namespace sluice::engine {

class HeartbeatMonitor {
 public:
  // The monitor of this process. It lives as long as a caller holds it.
  [[nodiscard]] static Result<std::shared_ptr<HeartbeatMonitor>> acquire();
  ~HeartbeatMonitor();
  HeartbeatMonitor(const HeartbeatMonitor&) = delete;

  // All calls below: any thread, but never from within a call of a listener other than on_progress_due().

  // Takes over the control connections of a committed session. Returns the session's id for the calls below.
  // `listener` must live until remove().
  [[nodiscard]] uint64_t add(std::vector<ControlPeer> peers, HeartbeatListener& listener,
                             bool fault_tolerant = false);
  // Sends ABORT to every reducer, once; no effect after a loss. Does not call the listener.
  void abort(uint64_t session, Errc code, uint32_t rank, const std::string& text);
  // Sends LEAVE to every reducer; on_left() follows.
  void leave(uint64_t session);
  // Closes the connections. The listener is not called after this returns.
  void remove(uint64_t session);

  // The calls below are for fault-tolerant sessions.

  // Sends a message to one reducer, or to all reducers that are connected. The session must repeat messages
  // that a reducer has missed after replace_connection(). A reducer that reads nothing loses its connection.
  template <typename M>
  void send(uint64_t session, size_t peer, const M& message);
  template <typename M>
  void send_all(uint64_t session, const M& message);
  // Installs a new connection to the reducer; an existing one is dropped. Sends LEAVE again if it is due. No
  // effect for a dropped peer and after the session's end.
  void replace_connection(uint64_t session, size_t peer, ControlConnection connection);
  // Removes the reducer from the session: closes its connection and counts the reducer as lost.
  void drop(uint64_t session, size_t peer);
  // True when the reducer's connection has ended, or was silent for half its timeout and at least two
  // heartbeats. Another rank may then have found the reducer lost already.
  [[nodiscard]] bool is_unresponsive(uint64_t session, size_t peer);
  // Adds the connection of a reducer that is joining. Returns nullopt after the session's end.
  [[nodiscard]] std::optional<size_t> add_peer(uint64_t session, ControlPeer peer);
  // Makes the added reducer part of the session: sends COMMIT, and LEAVE if it is due.
  void commit_peer(uint64_t session, size_t peer, const wire::Commit& commit);

 private:
  HeartbeatMonitor() = default;
  [[nodiscard]] Result<void> start();
  void run();
  void run_turn();
  // Calls on_progress_due() of every listener.
  void run_progress();
  // The session unless it has ended. Lock held.
  [[nodiscard]] MonitoredSession* find_active(uint64_t session);
  [[nodiscard]] Nanos next_due() const;  // lock held

  ControlPoller poller_;
  std::thread thread_;
  std::mutex progress_mutex_;  // held during run_progress(); locked before mutex_
  std::mutex mutex_;
  bool stopping_ = false;
  uint64_t next_id_ = 1;  // 0 would collide with ControlPoller::kWakeKey
  std::map<uint64_t, MonitoredSession> sessions_;
};

template <typename M>
void HeartbeatMonitor::send(uint64_t session, size_t peer, const M& message) {
  const std::lock_guard lock(mutex_);
  MonitoredSession* const s = find_active(session);
  if (s != nullptr && peer < s->peer_count()) s->send(peer, message);
}

template <typename M>
void HeartbeatMonitor::send_all(uint64_t session, const M& message) {
  const std::lock_guard lock(mutex_);
  MonitoredSession* const s = find_active(session);
  if (s == nullptr) return;
  for (size_t i = 0; i < s->peer_count(); ++i) s->send(i, message);
}

}  // namespace sluice::engine
