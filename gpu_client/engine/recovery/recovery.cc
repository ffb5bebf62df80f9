#include "gpu_client/engine/recovery/recovery.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"

namespace sluice::engine {
namespace {

using blackbox::EventKind;

// How often the thread checks whether the scheduler is quiescent. Unless a connection is stuck, the transport
// returns all buffers within a turn or two.
constexpr Nanos kQuiescencePoll = kMillisecond;

}  // namespace

Recovery::Recovery(const JoinOptions& options, const Membership& membership, SessionParts parts,
                   Listener& listener)
    : options_(options),
      log_(options.identity.log()),
      blackbox_(blackbox::EventSource::of_rank(options.identity.session, options.identity.rank)),
      incarnation_(membership.incarnation),
      first_view_(membership.view),
      view_hash_(membership.view_hash),
      parts_(parts),
      listener_(listener),
      follower_(membership.view) {
  uint32_t lane = 0;
  for (const ReducerReservation& reservation : membership.reservations) {
    ReducerState& r = append_reducer(reservation);
    r.first_lane = lane;
    lane += r.lanes;
  }
  usable_reducers_ = find_usable_reducers();
  prepare_meter(membership);
  if (options_.identity.rank != 0) return;
  watch_ = std::make_unique<PoolWatch>(PoolWatchOptions{.join = options_,
                                                        .incarnation = incarnation_,
                                                        .first_view = first_view_,
                                                        .reservation_timeout = reducer_join_timeout()},
                                       static_cast<PoolWatch::Listener&>(*this));
}

void Recovery::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (watch_) watch_->stop();
  for (PendingJoin& j : pending_joins_) {
    j.interrupt();
    j.thread.join();
  }
  pending_joins_.clear();
  for (ReducerState& r : reducers_) r.reconnector.reset();
  events_.clear();
}

void Recovery::begin(uint32_t monitor_id) {
  monitor_id_ = monitor_id;
  {
    const std::lock_guard lock(mutex_);
    begun_ = true;
    start_thread_if_due();
  }
  if (watch_) check_watch(watch_->begin());
}

void Recovery::post(std::function<void()> event) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    events_.push_back(std::move(event));
    start_thread_if_due();
  }
  changed_.notify_all();
}

// The meter or the first event starts the thread. If the system cannot start it, shares stay as they are, and
// the first event ends the session as without recovery.
void Recovery::start_thread_if_due() {
  if (!begun_ || stopping_ || (events_.empty() && !meter_) || thread_.joinable()) return;
  auto thread = start_thread("sluice-recovery", [this] { run(); });
  if (thread) {
    thread_ = std::move(*thread);
  } else if (events_.empty()) {
    meter_.reset();
  } else {
    stopping_ = true;
    listener_.on_no_recovery_thread(thread.error());
  }
}

void Recovery::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (events_.empty()) {
      const auto is_due = [this] { return stopping_ || !events_.empty(); };
      Nanos timeout = 3600 * kSecond;
      for (const PendingJoin& j : pending_joins_) {
        if (!j.abandoned) timeout = std::min(timeout, std::max(j.deadline - monotonic_now(), Nanos{0}));
      }
      if (meter_) timeout = std::min(timeout, std::max(next_sample_ - monotonic_now(), Nanos{0}));
      if (restart_pending_) timeout = std::min(timeout, kQuiescencePoll);
      changed_.wait_for(lock, std::chrono::nanoseconds(timeout), is_due);
    }
    std::function<void()> event;
    if (!events_.empty() && !stopping_) {
      event = std::move(events_.front());
      events_.pop_front();
    }
    lock.unlock();
    std::optional<std::vector<config::Endpoint>> usable;
    try {
      if (event && !failed_) event();
      if (restart_pending_ && !failed_) try_restart();
      if (meter_ && !failed_) sample_link();
      expire_joins();
      if (event) usable = find_usable_reducers();
    } catch (const std::exception& e) {
      fail_session({Errc::kExhausted, std::string("out of memory during recovery: ") + e.what()});
    }
    lock.lock();
    if (usable) usable_reducers_ = std::move(*usable);
  }
}

void Recovery::lane_lost(uint32_t lane, Errc reason, uint64_t frames_received, std::string text) {
  post([this, lane, reason, frames_received, text = std::move(text), at = monotonic_now()] {
    const auto found = std::ranges::find_if(reducers_, [lane](const ReducerState& r) { return r.has(lane); });
    if (found == reducers_.end() || found->lost) return;
    ReducerState& r = *found;
    begin_loss(r);
    const std::string name = r.name + " lane " + std::to_string(lane - r.first_lane);
    blackbox_.record(
        EventKind::kConnectionLost,
        {.peer = r.id, .a = blackbox::lane_number(lane - r.first_lane), .code = reason, .at = at},
        is_bad_frame(reason) ? text : std::string());
    if (stall_reason_.empty()) {
      stall_reason_ = name + (reason == Errc::kClosed  ? ": closed by the reducer"
                              : reason == Errc::kReset ? ": connection reset"
                                                       : ": " + std::string(to_string(reason)));
    }
    if (is_bad_frame(reason)) {
      r.bad_frames = frames_received >= kGoodFrames ? 1 : r.bad_frames + 1;
      log_.warn(name + ": connection closed for a malformed frame (" + std::string(to_string(reason)) +
                (text.empty() ? "" : ": " + text) + ")");
      if (r.bad_frames >= kMaxBadFrames) {
        return suspect(
            r, reason,
            std::to_string(kMaxBadFrames) + " connections in a row were closed for malformed frames");
      }
    }
    if (frames_received > 1 && r.reconnector) r.reconnector->mark_stable(lane - r.first_lane);
    reconnect(r, false, uint64_t{1} << (lane - r.first_lane));
  });
}

void Recovery::lane_resumed(uint32_t lane) {
  post([this, lane] {
    counters_.add_resumed_connection();
    for (ReducerState& r : reducers_) {
      if (!r.has(lane)) continue;
      r.broken_lanes &= ~(uint64_t{1} << (lane - r.first_lane));
      blackbox_.record(EventKind::kConnectionResumed,
                       {.peer = r.id, .a = blackbox::lane_number(lane - r.first_lane)});
    }
    if (is_recovered()) end_stall("connections resumed");
  });
}

void Recovery::control_lost(size_t reducer_index, Errc code, std::string text) {
  post([this, reducer_index, code, t = std::move(text)] {
    ReducerState& r = reducers_[reducer_index];
    if (r.lost) return;
    begin_loss(r);
    if (stall_reason_.empty()) stall_reason_ = t;
    // A silent connection is still open, so a new one would be silent too.
    if (code == Errc::kTimeout) return suspect(r, Errc::kReducerLost, t);
    reconnect(r, true, 0);
  });
}

void Recovery::view_query(size_t reducer_index, wire::ViewQuery query) {
  post([this, reducer_index, q = std::move(query)] { on_query(reducer_index, q); });
}

void Recovery::rate_changes(size_t reducer_index, wire::RateChanges changes) {
  post([this, reducer_index, c = std::move(changes)] {
    const ReducerState& r = reducers_[reducer_index];
    if (const auto violation = follower_.on_rate_changes(r.id, c)) fail_session(r, *violation);
  });
}

void Recovery::view_commit(size_t reducer_index, const wire::ViewCommit& commit) {
  post([this, reducer_index, commit] { on_commit(reducer_index, commit); });
}

// The reducer serves until all ranks have changed the view. The other reducers decide, because if all drain
// at the same time one has to stay.
void Recovery::drain_notice(size_t reducer_index) {
  post([this, reducer_index] {
    ReducerState& r = reducers_[reducer_index];
    if (r.lost || std::exchange(r.draining, true)) return;
    log_.info(r.name + " leaves the session: draining");
    blackbox_.record(EventKind::kReducerDraining, {.peer = r.id});
    stall_reason_ = r.name + ": draining";
    send_drain_requests();
  });
}

void Recovery::send_known_changes() {
  for (const ReducerState& r : reducers_) send_known_changes(r);
}

void Recovery::send_known_changes(const ReducerState& r) {
  for (const wire::RateChanges& changes : wire::rate_messages(follower_.history().rate_changes()))
    parts_.monitor.send(monitor_id_, r.index, changes);
  parts_.monitor.send(monitor_id_, r.index, follower_.known_changes());
}

void Recovery::send_drain_requests() {
  for (const ReducerState& r : reducers_) {
    if (r.lost || !r.draining) continue;
    for (const ReducerState& other : reducers_) {
      if (!other.lost && other.id != r.id)
        parts_.monitor.send(monitor_id_, other.index,
                            wire::Suspect{.reducer = r.id, .code = Errc::kDraining});
    }
  }
}

void Recovery::suspect(ReducerState& r, Errc code, const std::string& cause) {
  if (!follower_.suspect(r.id)) return;
  const bool is_planned = code == Errc::kShutdown;
  if (is_planned)
    counters_.begin_stall();
  else
    begin_loss(r);
  r.lost = true;
  if (!is_planned) counters_.add_lost_reducer();
  const std::string prefix = r.name + ": ";  // the cause may start with it
  const std::string reason = cause.starts_with(prefix) ? cause.substr(prefix.size()) : cause;
  if (is_planned)
    log_.info(r.name + " leaves the session: " + reason);
  else
    log_.warn(r.name + " lost: " + reason);
  blackbox_.record(is_planned ? EventKind::kReducerRemoved : EventKind::kReducerLost,
                   {.peer = r.id, .code = code}, reason);
  stall_reason_ = prefix + reason;
  if (auto error = follower_.fatal_error())
    return fail_session({error->code, r.name + " lost: " + reason + "; " + error->text});
  parts_.monitor.send_all(monitor_id_, wire::Suspect{.reducer = r.id, .code = code});
  shorten_join_deadlines();
  if (watch_) check_watch(watch_->reducer_removed(r.id));
}

void Recovery::on_query(size_t reducer_index, const wire::ViewQuery& query) {
  using Step = ViewFollower::Query::Step;
  const ViewFollower::Query q = follower_.on_query(reducers_[reducer_index].id, query);
  switch (q.step) {
    case Step::kIgnore: return;
    case Step::kViolation: return fail_session(reducers_[reducer_index], q.violation);
    case Step::kSendKnown: return send_known_changes();
    case Step::kAccept:
    case Step::kRepeatAnswer: break;
  }
  if (q.step == Step::kAccept) restart_pending_ = false;
  for (const uint64_t id : q.close) {
    if (ReducerState* const r = find_reducer(id); r != nullptr) {
      if (stall_reason_.empty()) stall_reason_ = r->name + ": lost by another rank";
      close_reducer(*r);
    } else {
      reservations_.erase(id);
      cancel_join(id);
      if (watch_) check_watch(watch_->reducer_removed(id));
    }
  }
  if (q.step == Step::kAccept && q.close.empty() && q.join.empty() && stall_reason_.empty())
    stall_reason_ = "the rate of a link has changed";
  query_sender_ = reducer_index;
  for (const ViewFollower::Addition& addition : q.join) join_reducer(addition);
  if (!q.close.empty()) shorten_join_deadlines();
  answer_query();
}

// Answers once all joins for the query have finished. This rank contributes until then.
void Recovery::answer_query() {
  if (failed_ || !std::ranges::all_of(pending_joins_, &PendingJoin::abandoned)) return;
  if (auto error = follower_.fatal_error()) return fail_session(*error);
  // A query whose view is in use already stops nothing. The arbiter repeats it if the answer may be lost.
  const bool to_stop = follower_.is_stopped();
  if (to_stop) counters_.begin_stall();
  uint64_t first_unfinished = 0;
  const bool stopped = run_on_loop([&] {
    if (to_stop) parts_.scheduler.stop();
    first_unfinished = parts_.scheduler.first_unfinished();
  });
  if (!stopped) return;
  if (const auto answer = follower_.answer(first_unfinished))
    parts_.monitor.send(monitor_id_, query_sender_, *answer);
}

void Recovery::on_commit(size_t reducer_index, const wire::ViewCommit& commit) {
  using Step = ViewFollower::Commit::Step;
  uint64_t first_unfinished = 0;
  if (!run_on_loop([&] { first_unfinished = parts_.scheduler.first_unfinished(); })) return;
  const ViewFollower::Commit c =
      follower_.on_commit(reducers_[reducer_index].id, commit, first_unfinished, parts_.scheduler.depth());
  if (c.step == Step::kIgnore) return;
  if (c.step == Step::kViolation) return fail_session(reducers_[reducer_index], c.violation);
  restart_pending_ = true;
}

void Recovery::fail_session(const Error& error) {
  if (std::exchange(failed_, true)) return;
  listener_.on_recovery_failed(error);
}

void Recovery::fail_session(const ReducerState& source, const Error& violation) {
  fail_session({violation.code, source.name + ": " + violation.text});
}

void Recovery::end_stall(const char* outcome) {
  const auto duration = counters_.end_stall();
  if (!duration) return;
  if (OperationRecorder* const recorder = parts_.scheduler.recorder()) {
    const Nanos now = monotonic_now();
    recorder->report_stall(now - *duration, now, stall_reason_);
  }
  const std::string text =
      outcome + (stall_reason_.empty() ? "" : " (" + std::exchange(stall_reason_, {}) + ")");
  blackbox_.record(EventKind::kStallEnded, {.a = static_cast<uint64_t>(*duration / kMillisecond)}, text);
  const std::string line =
      "session resumed after " + std::to_string(*duration / kMillisecond) + " ms: " + text;
  if (std::exchange(stall_by_loss_, false))
    log_.warn(line);
  else
    log_.info(line);
}

bool Recovery::is_recovered() const {
  const auto is_connected = [](const ReducerState& r) {
    return r.lost || (r.broken_lanes == 0 && !r.broken_control);
  };
  return !follower_.is_stopped() && !restart_pending_ && std::ranges::all_of(reducers_, is_connected);
}

}  // namespace sluice::engine
