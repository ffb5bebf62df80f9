#include "gpu_client/engine/recovery/reconnector.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"
#include "gpu_client/engine/join/reducer_reservation.h"

namespace sluice::engine {

Reconnector::Reconnector(ReconnectorOptions options, Listener& listener)
    : options_(std::move(options)),
      listener_(listener),
      back_off_(options_.first_pause, options_.longest_pause,
                static_cast<uint32_t>(monotonic_now()) ^ options_.identity.rank) {}

Result<void> Reconnector::request(bool control, uint64_t lanes) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || failed_) return {};
  const Nanos now = monotonic_now();
  const auto mark_broken = [&](size_t index) {
    ConnectionState& c = connections_[index];
    if (std::exchange(c.broken, true)) return;
    c.repeated = c.connected_at != 0 && now - c.connected_at < options_.longest_pause;
    if (!c.repeated) c.since = now;
  };
  if (control) mark_broken(kControl);
  for (size_t lane = 0; lane < wire::kMaxLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) mark_broken(1 + lane);
  }
  if (running_ || (!control && lanes == 0)) return {};
  if (thread_.joinable())
    thread_.join();  // does not block: running_ is false, so the thread has ended its work
  if (!interrupt_.valid()) interrupt_ = transport::tcp::Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!interrupt_.valid())
    return fail(Errc::kSystem, std::string("cannot create an eventfd: ") + std::strerror(errno));
  auto thread = start_thread("sluice-resume", [this] { run(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  running_ = true;
  return {};
}

void Reconnector::mark_stable(uint32_t lane) {
  const std::lock_guard lock(mutex_);
  connections_[1 + lane].connected_at = 0;
}

void Reconnector::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    const uint64_t one = 1;
    if (interrupt_.valid()) static_cast<void>(!::write(interrupt_.fd(), &one, sizeof one));
  }
  if (!thread_.joinable()) return;
  SLUICE_ASSERT(thread_.get_id() != std::this_thread::get_id());
  thread_.join();
}

std::optional<Reconnector::Task> Reconnector::next_task(size_t last) {
  const std::lock_guard lock(mutex_);
  std::optional<Task> task;
  for (size_t i = 1; i <= kConnections && !stopping_; ++i) {
    const size_t index = (last + i) % kConnections;
    ConnectionState& c = connections_[index];
    if (!c.broken) continue;
    const Nanos deadline = c.since + options_.resume_timeout;
    if (!task) task = {.index = index, .deadline = deadline, .repeated = std::exchange(c.repeated, false)};
    task->deadline = std::min(task->deadline, deadline);
  }
  running_ = task.has_value();
  return task;
}

void Reconnector::run() {
  using Outcome = Attempt::Outcome;
  size_t last = kConnections - 1;  // so that the control connection is first
  bool first = true;
  Nanos refused_since = 0;
  std::string last_error = "no attempt was made";
  while (const auto task = next_task(last)) {
    if (task->repeated) {
      // A connection that breaks at once does not count as open, so deadline and back-off continue.
      last_error = "connections break as soon as they are opened";
      pause(task->deadline);
    } else if (first) {
      back_off_.reset();
    }
    first = false;
    const Nanos began = monotonic_now();
    if (began >= task->deadline) {
      return report_failure(Errc::kTimeout, options_.name + ": not reconnected within " +
                                                std::to_string(options_.resume_timeout / kMillisecond) +
                                                " ms: " + last_error);
    }
    last = task->index;
    const Deadline deadline(std::min(task->deadline, began + options_.try_timeout), interrupt_.fd());
    Attempt a = attempt(task->index, deadline);
    if (a.outcome == Outcome::kConnected) {
      if (!report_connected(task->index, std::move(a.socket))) return;
      if (!task->repeated) back_off_.reset();
      refused_since = 0;
      continue;
    }
    const Nanos now = monotonic_now();
    Nanos next = task->deadline;
    if (a.outcome != Outcome::kRefused) {
      refused_since = 0;
    } else {
      if (refused_since == 0) refused_since = began;
      next = std::min(next, refused_since + options_.refusal_grace);
    }
    const bool is_final = refused_since != 0 && now >= refused_since + options_.refusal_grace;
    if (a.outcome == Outcome::kReplaced || is_final)
      return report_failure(a.error.code, std::move(a.error.text));
    last_error = std::move(a.error.text);
    pause(next);
  }
}

Reconnector::Attempt Reconnector::attempt(size_t index, const Deadline& deadline) const {
  using Outcome = Attempt::Outcome;
  const bool control = index == kControl;
  const auto failed = [](Outcome outcome, Error error) {
    return Attempt{.outcome = outcome, .socket = {}, .error = std::move(error)};
  };
  auto socket = connect_once(options_.address, options_.identity, deadline);
  if (!socket) {
    const bool refused = socket.error().code == Errc::kReset;
    return failed(refused ? Outcome::kRefused : Outcome::kRetry,
                  {socket.error().code, options_.name + ": " + socket.error().text});
  }
  const auto request_failed = [&](Error error) {
    const bool unknown = error.code == Errc::kUnknownSession;
    return failed(unknown ? Outcome::kRefused : Outcome::kRetry, std::move(error));
  };
  auto h = perform_handshake(std::move(*socket), options_.address, options_.name, options_.identity,
                             control ? wire::Purpose::kControl : wire::Purpose::kLane,
                             control ? 0 : static_cast<uint32_t>(index - 1), options_.incarnation, deadline);
  if (!h) return request_failed(std::move(h.error()));
  if (h->welcome.reducer != options_.reducer) return failed(Outcome::kReplaced, replaced_process_error(*h));
  const AttachParameters parameters{.reducer = options_.reducer,
                                    .handle = options_.handle,
                                    .view_hash = options_.view_hash,
                                    .slots = control ? 0 : options_.slots};
  if (auto attached = attach(*h, options_.identity, parameters, deadline); !attached)
    return request_failed(std::move(attached.error()));
  log_lane_transport(*h, options_.identity);
  return {.outcome = Outcome::kConnected, .socket = std::move(h->socket)};
}

bool Reconnector::report_connected(size_t index, transport::tcp::Socket socket) {
  {
    // Before the listener has the connection, because then it may break again and be requested again.
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      running_ = false;
      return false;
    }
    connections_[index].broken = false;
    connections_[index].connected_at = monotonic_now();
  }
  if (index == kControl) {
    listener_.on_control_reconnected(options_.reducer,
                                     ControlConnection(std::move(socket), options_.name, options_.handle));
  } else {
    listener_.on_lane_reconnected(options_.reducer, static_cast<uint32_t>(index - 1), std::move(socket));
  }
  return true;
}

void Reconnector::report_failure(Errc code, std::string text) {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
    if (stopping_) return;
    failed_ = true;
  }
  listener_.on_reconnect_failed(options_.reducer, code, std::move(text));
}

void Reconnector::pause(Nanos deadline) {
  const Nanos time = std::clamp<Nanos>(deadline - monotonic_now(), 0, back_off_.next());
  pollfd p{.fd = interrupt_.fd(), .events = POLLIN, .revents = 0};
  ::poll(&p, 1, static_cast<int>(div_ceil(static_cast<uint64_t>(time), kMillisecond)));
}

}  // namespace sluice::engine
