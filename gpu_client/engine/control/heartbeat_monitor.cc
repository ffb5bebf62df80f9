#include "gpu_client/engine/control/heartbeat_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"

namespace sluice::engine {

Result<std::shared_ptr<HeartbeatMonitor>> HeartbeatMonitor::acquire() {
  static std::mutex mutex;
  static std::weak_ptr<HeartbeatMonitor> current;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != ::getpid()) {
    // After a fork `current` refers to the parent's monitor, which has no thread in this process.
    current.reset();
    owner = ::getpid();
  }
  std::shared_ptr<HeartbeatMonitor> monitor = current.lock();
  if (!monitor) {
    monitor.reset(new HeartbeatMonitor);
    if (auto started = monitor->start(); !started) return tl::unexpected(started.error());
    current = monitor;
  }
  return monitor;
}

Result<void> HeartbeatMonitor::start() {
  if (auto opened = poller_.open(); !opened) return opened;
  auto thread = start_thread("sluice-monitor", [this] { run(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  return {};
}

HeartbeatMonitor::~HeartbeatMonitor() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  poller_.wake();
  thread_.join();
}

uint64_t HeartbeatMonitor::add(std::vector<ControlPeer> peers, HeartbeatListener& listener,
                               bool fault_tolerant) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_id_++;
  MonitoredSession& session = sessions_.try_emplace(id, id, listener, fault_tolerant, poller_).first->second;
  const Nanos now = monotonic_now();
  for (ControlPeer& p : peers) session.add_peer(std::move(p), now);
  poller_.wake();
  return id;
}

MonitoredSession* HeartbeatMonitor::find_active(uint64_t session) {
  const auto found = sessions_.find(session);
  return found == sessions_.end() || found->second.has_ended() ? nullptr : &found->second;
}

void HeartbeatMonitor::abort(uint64_t session, Errc code, uint32_t rank, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (MonitoredSession* const s = find_active(session)) s->abort(code, rank, text);
}

void HeartbeatMonitor::leave(uint64_t session) {
  const std::lock_guard lock(mutex_);
  if (MonitoredSession* const s = find_active(session)) s->leave();
}

void HeartbeatMonitor::remove(uint64_t session) {
  const std::lock_guard no_progress(progress_mutex_);
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  found->second.unwatch_all();
  sessions_.erase(found);
}

void HeartbeatMonitor::replace_connection(uint64_t session, size_t peer, ControlConnection connection) {
  const std::lock_guard lock(mutex_);
  if (MonitoredSession* const s = find_active(session)) s->replace_connection(peer, std::move(connection));
}

void HeartbeatMonitor::drop(uint64_t session, size_t peer) {
  const std::lock_guard lock(mutex_);
  if (MonitoredSession* const s = find_active(session)) s->drop(peer);
}

bool HeartbeatMonitor::is_unresponsive(uint64_t session, size_t peer) {
  const std::lock_guard lock(mutex_);
  const MonitoredSession* const s = find_active(session);
  return s != nullptr && s->is_unresponsive(peer);
}

std::optional<size_t> HeartbeatMonitor::add_peer(uint64_t session, ControlPeer peer) {
  const std::lock_guard lock(mutex_);
  MonitoredSession* const s = find_active(session);
  return s != nullptr ? s->add_reducer(std::move(peer)) : std::nullopt;
}

void HeartbeatMonitor::commit_peer(uint64_t session, size_t peer, const wire::Commit& commit) {
  const std::lock_guard lock(mutex_);
  if (MonitoredSession* const s = find_active(session)) s->commit_peer(peer, commit);
}

void HeartbeatMonitor::run() {
  for (;;) {
    try {
      run_turn();
      run_progress();
    } catch (const std::exception&) {
      // Out of memory for a frame: the socket keeps the bytes and the next turn tries again.
    }
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

void HeartbeatMonitor::run_progress() {
  const std::lock_guard progress(progress_mutex_);  // remove() waits for it, so the listeners live
  std::vector<HeartbeatListener*> listeners;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      if (!session.has_ended()) listeners.push_back(&session.listener());
    }
  }
  for (HeartbeatListener* const listener : listeners) listener->on_progress_due();
}

Nanos HeartbeatMonitor::next_due() const {
  Nanos due = INT64_MAX;
  for (const auto& [id, session] : sessions_) due = std::min(due, session.next_due());
  return due;
}

void HeartbeatMonitor::run_turn() {
  int timeout_ms = -1;
  {
    const std::lock_guard lock(mutex_);
    if (const Nanos due = next_due(); due != INT64_MAX) {
      const Nanos left = std::clamp<Nanos>(due - monotonic_now(), 0, 3600 * kSecond);
      timeout_ms = static_cast<int>(div_ceil(static_cast<uint64_t>(left), kMillisecond));
    }
  }
  ControlPoller::Events buffer;
  const auto events = poller_.wait(buffer, timeout_ms);
  const std::lock_guard lock(mutex_);
  for (const epoll_event& event : events) {
    if (event.data.u64 == ControlPoller::kWakeKey) {
      poller_.consume_wake();
      continue;
    }
    // The session may have been removed since the event.
    const auto found = sessions_.find(MonitoredSession::session_of(event.data.u64));
    if (found != sessions_.end()) found->second.serve(MonitoredSession::peer_of(event.data.u64));
  }
  for (auto& [id, session] : sessions_) session.serve_pending();
  const Nanos now = monotonic_now();
  for (auto& [id, session] : sessions_) session.check_timers(now);
}

}  // namespace sluice::engine
