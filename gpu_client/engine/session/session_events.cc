// Session's reactions to events of its parts: the progress loop, the heartbeat monitor and recovery.
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/engine/base/thread.h"
#include "gpu_client/engine/session/session.h"

namespace sluice::engine {
namespace {

constexpr uint32_t kLateMs = 1000;   // a rank that others wait for this long is an event
constexpr size_t kMaxLogLines = 64;  // that wait while nobody reads stderr

}  // namespace

std::string Session::describe(const SchedulerFailure& end) const {
  std::string text = replace_control_characters(end.text.data());
  const std::string lane = end.lane < lane_names_.size() ? lane_names_[end.lane] : "added reducer";
  if (end.from_peer) return lane + ": the reducer ended the session: " + text;
  if (end.lane != kNoLane) return lane + ": " + text;
  if (const uint32_t missing = missing_ranks_.load(std::memory_order_acquire); missing > 0) {
    text += "; a reducer waits for " + std::to_string(missing) + (missing == 1 ? " rank" : " ranks") +
            ", the first is rank " + std::to_string(missing_rank_.load(std::memory_order_relaxed));
  }
  return text;
}

Rank Session::ended_by() const noexcept {
  // The rank that reports the loss of a reducer first is not at fault.
  if (code() == Errc::kReducerLost) return wire::kNoRank;
  const Rank rank = end_latch_.rank();
  const auto& names = options_.join.identity.names;
  if (names) return names->outward(rank);
  return rank < ranks() ? rank : wire::kNoRank;
}

std::string Session::reason() const {
  const auto& names = options_.join.identity.names;
  return names ? names->reason(end_latch_.text()) : end_latch_.text();
}

void Session::on_scheduler_ended(const SchedulerFailure& end) noexcept {
  try {
    const std::string text = describe(end);
    Rank rank = end.from_peer ? end.rank : options_.join.identity.rank;
    if (!end.from_peer && end.code == Errc::kOpTimeout)
      rank = missing_ranks_.load(std::memory_order_acquire) > 0
                 ? missing_rank_.load(std::memory_order_relaxed)
                 : wire::kNoRank;
    if (!end_latch_.set(end.code, text, rank)) return;
    // The lane connections are still open, so the reducers receive the reason before they see the loss.
    record_end();
    monitor_->abort(monitor_id_, end.code, rank,
                    end.from_peer ? replace_control_characters(end.text.data()) : text);
  } catch (const std::exception&) {
    end_session(end.code, {});
  }
  progress_thread_->signal();
}

void Session::record_end() noexcept {
  const Errc code = end_latch_.code();
  const Rank rank = end_latch_.rank();
  std::string text;
  try {
    text = end_latch_.text();
  } catch (const std::exception&) {  // out of memory: an event without text
  }
  blackbox_.record(blackbox::EventKind::kEnded, {.peer = rank < ranks() ? rank : wire::kNoRank, .code = code},
                   text);
  if (code != Errc::kClosed) dump_.request("a session failed");
  if (options_.on_ended) options_.on_ended();
}

void Session::end_session(Errc code, std::string text, Rank at_fault) noexcept {
  if (!end_latch_.set(code, std::move(text), at_fault)) return;
  record_end();
  progress_thread_->notify();
  progress_thread_->signal();
}

void Session::on_waiting(const WaitingStatus& waiting) noexcept {
  // A thread that reads a number above 0 then reads a rank.
  if (waiting.missing_ranks > 0) missing_rank_.store(waiting.first_rank, std::memory_order_relaxed);
  missing_ranks_.store(waiting.missing_ranks, std::memory_order_release);
  waited_ms_.store(waiting.missing_ranks > 0 ? waiting.waited_ms : 0, std::memory_order_relaxed);
  const bool is_late = waiting.missing_ranks > 0 && waiting.waited_ms >= kLateMs;
  const uint32_t late = is_late ? waiting.first_rank : wire::kNoRank;
  const uint32_t before = std::exchange(late_rank_, late);
  if (late == before) return;
  if (before != wire::kNoRank) blackbox_.record(blackbox::EventKind::kRankOnTime, {.peer = before});
  if (is_late) {
    blackbox_.record(blackbox::EventKind::kRankLate,
                     {.peer = late, .a = waiting.waited_ms, .b = waiting.missing_ranks});
  }
}

// A fault-tolerant session makes progress between operations too. Otherwise a rank that computes for long
// would not notice a broken lane connection before the reducers' absence deadline.
void Session::on_progress_due() noexcept {
  if (!options_.own_thread && begun_.load(std::memory_order_acquire) &&
      (recovery_ || table_->open_count() > 0))
    progress_thread_->progress_once();
}

// Without memory for the event recovery is impossible, so the session ends.
template <typename F>
void Session::post_to_recovery(F&& event) noexcept {
  try {
    event(*recovery_);
  } catch (const std::exception&) {
    end_session(Errc::kExhausted, {});
  }
}

void Session::on_lane_lost(uint32_t lane, Errc reason) noexcept {
  if (!recovery_) {
    if (lane >= lane_ids_.size()) return;
    const LaneId& id = lane_ids_[lane];
    return blackbox_.record(blackbox::EventKind::kConnectionLost,
                            {.peer = id.reducer, .a = blackbox::lane_number(id.lane), .code = reason});
  }
  // The reducer has finished with this rank, which is leaving and has all its results.
  if (reason == Errc::kClosed && leaving_.load(std::memory_order_acquire) &&
      scheduler_->oldest_operation() == kNoOperation)
    return;
  const SchedulerFailure& failure = scheduler_->last_failure();
  const char* const text = failure.lane == lane && failure.code == reason ? failure.text.data() : "";
  post_to_recovery(
      [&](Recovery& r) { r.lane_lost(lane, reason, scheduler_->lane(lane).last_frames_in(), text); });
}

void Session::on_lane_resumed(uint32_t lane) noexcept {
  post_to_recovery([&](Recovery& r) { r.lane_resumed(lane); });
}

void Session::on_control_lost(size_t peer, Errc code, std::string text) noexcept {
  post_to_recovery([&](Recovery& r) { r.control_lost(peer, code, std::move(text)); });
}

void Session::on_view_query(size_t peer, const wire::ViewQuery& query) noexcept {
  post_to_recovery([&](Recovery& r) { r.view_query(peer, query); });
}

void Session::on_rate_changes(size_t peer, const wire::RateChanges& changes) noexcept {
  post_to_recovery([&](Recovery& r) { r.rate_changes(peer, changes); });
}

void Session::on_view_commit(size_t peer, const wire::ViewCommit& commit) noexcept {
  post_to_recovery([&](Recovery& r) { r.view_commit(peer, commit); });
}

void Session::on_drain_notice(size_t peer, const wire::DrainNotice& /*notice*/) noexcept {
  post_to_recovery([&](Recovery& r) { r.drain_notice(peer); });
}

void Session::on_recovery_failed(const Error& error) noexcept {
  // A rank that has all its results needs no reducer to leave.
  if (leaving_.load(std::memory_order_acquire) && table_->open_count() == 0) return on_left();
  end_for_all(error.code, error.text, error.code, rank());
}

// Not on the monitor's thread: nobody may read stderr, and heartbeats must not wait for that. Lines wait for
// those before them, because a path that has caused one causes no other for long.
void Session::on_path_warning(const std::string& text) noexcept {
  try {
    {
      const std::lock_guard lock(logging_);
      if (log_lines_.size() >= kMaxLogLines) return;
      log_lines_.push_back(text);
      if (is_logging_) return;
    }
    if (log_thread_.joinable()) log_thread_.join();  // it has written its last line
    const std::lock_guard lock(logging_);
    log_thread_ = start_thread("sluice-log", [this] { write_log_lines(); }).value();
    is_logging_ = true;
  } catch (const std::exception&) {  // no memory or no thread: the next warning tries again
  }
}

void Session::write_log_lines() noexcept {
  for (;;) {
    std::string line;
    {
      const std::lock_guard lock(logging_);
      is_logging_ = !log_lines_.empty();
      if (!is_logging_) return;
      line = std::move(log_lines_.front());
      log_lines_.pop_front();
    }
    try {
      log().warn(line);
    } catch (const std::exception&) {  // out of memory: no line
    }
  }
}

void Session::on_left() noexcept {
  left_.store(true, std::memory_order_seq_cst);
  progress_thread_->notify();
  progress_thread_->signal();
}

}  // namespace sluice::engine
