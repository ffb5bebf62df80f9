#include "gpu_client/engine/control/heartbeat_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"

namespace sluice::engine {
namespace {

constexpr Nanos kStall = 500 * kMillisecond;  // a turn this late: the process was suspended or starved of CPU

}  // namespace

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
  auto poller = transport::tcp::Poller::make();
  if (!poller) return add_context("control connections", poller.error());
  poller_ = std::move(*poller);
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
  poller_->wake();
  thread_.join();
}

uint32_t HeartbeatMonitor::add(std::vector<ControlPeer> peers, HeartbeatListener& listener,
                               bool fault_tolerant, const blackbox::EventSource& blackbox) {
  const std::lock_guard lock(mutex_);
  const uint32_t id = next_id_++;
  MonitoredSession& session =
      sessions_.try_emplace(id, id, listener, fault_tolerant, blackbox, *poller_).first->second;
  const Nanos now = monotonic_now();
  for (ControlPeer& p : peers) session.add_peer(std::move(p), now);
  poller_->wake();
  return id;
}

void HeartbeatMonitor::remove(uint32_t session) {
  const std::lock_guard no_progress(progress_mutex_);
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  found->second.unwatch_all();
  sessions_.erase(found);
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
  Nanos due = 0, timeout = -1;
  {
    const std::lock_guard lock(mutex_);
    due = next_due();
    if (due != INT64_MAX) timeout = std::clamp<Nanos>(due - monotonic_now(), 0, 3600 * kSecond);
  }
  std::array<epoll_event, 64> buffer;
  const size_t count = poller_->wait(buffer, timeout);
  const std::lock_guard lock(mutex_);
  for (const epoll_event& event : std::span(buffer).first(count)) {
    // The session may have been removed since the event.
    const Handle owner = transport::tcp::Poller::owner(event);
    if (const auto found = sessions_.find(owner.generation); found != sessions_.end())
      found->second.serve(owner.index);
  }
  for (auto& [id, session] : sessions_) session.serve_pending();
  const Nanos now = monotonic_now();
  if (due != 0 && now - due > kStall) {
    for (auto& [id, session] : sessions_) session.on_process_stall(now, now - due);
  }
  for (auto& [id, session] : sessions_) session.check_timers(now);
}

}  // namespace sluice::engine
