#include "gpu_client/local/local_session.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/clock.h"
#include "gpu_client/local/futex.h"
#include "wire/messages.h"

namespace sluice::local {
namespace {

// A rank that waits yields its core so often before it sleeps: alone on its core that takes 15 to 20 us, and
// a wake-up costs about as much. Where ranks share a core, the time passes in which the others work, and
// costs nothing. Where a yield takes long, other threads need the cores, and ranks sleep at once; then they
// yield again, more and more often.
constexpr unsigned kYields = 32;
constexpr Nanos kLongYield = 500 * kMicrosecond;
constexpr Nanos kLongestSleep = kSecond;

}  // namespace

LocalSession::LocalSession(engine::SessionOptions options, Topology topology)
    : options_(std::move(options)),
      topology_(std::move(topology)),
      host_(topology_.host_of[options_.join.identity.rank]),
      blackbox_(blackbox::EventSource::of_rank(options_.join.identity.session, options_.join.identity.rank)),
      yields_(kYields) {}

LocalSession::~LocalSession() {
  if (!stage_ || stopping_.load(std::memory_order_relaxed)) return;  // close() has stopped the thread
  watch_->abandon();
  end_here(wire::kNoRank, Errc::kClosed, "session closed", Errc::kOk);
  stop_thread();
}

void LocalSession::run_thread() noexcept {
  bool watches = false;
  {
    const std::lock_guard lock(mutex_);
    watch_begun_ = watch_->begin();
    watches = watch_begun_->has_value();
  }
  changed_.notify_all();
  if (!watches) return;
  const auto sleeper = [this](const std::atomic<uint32_t>& word, uint32_t seen, Nanos timeout) {
    watch_->wait(word, seen, timeout);
  };
  const auto has_duty = [this] {
    return options_.own_thread && table_->open_count() > 0 && callers_.load(std::memory_order_seq_cst) == 0 &&
           !stopping_.load(std::memory_order_seq_cst);
  };
  const std::atomic<uint32_t>& word = segment_->doorbell(topology_.local_of[rank()]).watch_word;
  while (!stopping_.load(std::memory_order_seq_cst)) {
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    const bool drives = try_drive();
    if (drives) {
      check_failures();
      drive([&] { return !has_duty(); }, engine::kNoDeadline, sleeper);
      stop_driving();
    } else {
      stage_->wake();  // whoever makes progress looks at the peers, and wakes this thread afterwards
    }
    if (!drives || !has_duty()) watch_->wait(word, seen, kLongestSleep);
  }
  watch_->end();
}

void LocalSession::stop_thread() noexcept {
  stopping_.store(true, std::memory_order_seq_cst);
  stage_->wake_watch();
  stage_->wake();
  if (thread_.joinable()) thread_.join();
}

Status LocalSession::start(engine::OpRequest request, uint64_t& handle) {
  if (options_.op_timeout > 0) request.deadline = monotonic_now() + options_.op_timeout;
  if (recorder_) request.issued = monotonic_now();
  return submit(request, handle);
}

Status LocalSession::submit(const engine::OpRequest& request, uint64_t& handle) {
  const bool caller_waits = request.caller_waits;
  {
    const std::lock_guard lock(submission_);
    if (closing_) return Errc::kClosed;
    if (const Errc ended = code(); ended != Errc::kOk) return ended;
    const auto index = table_->open(request);
    if (!index) return Errc::kExhausted;
    handle = table_->handle_of(*index);
    if ((*table_)[*index].chunk_count == 0) {
      table_->end(*index, Errc::kOk);
      empty_operations_.fetch_add(1, std::memory_order_relaxed);
      return Errc::kOk;
    }
    stage_->submit(*index);
  }
  if (caller_waits) return Errc::kOk;
  // Whoever stops to make progress looks at the open operations afterwards.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (driving_.load(std::memory_order_seq_cst)) {
    stage_->wake();
  } else if (options_.own_thread) {
    stage_->wake_watch();
  }
  return Errc::kOk;
}

bool LocalSession::release_if_ended(uint64_t handle, Status& status) {
  const std::lock_guard lock(submission_);
  return table_->release_if_ended(handle, status);
}

Status LocalSession::test(uint64_t handle, bool& done) {
  if (!options_.own_thread) progress();
  Status status;
  done = release_if_ended(handle, status);
  return status;
}

Status LocalSession::wait(uint64_t handle, Nanos deadline) {
  const engine::Operation* o = nullptr;
  {
    const std::lock_guard lock(submission_);
    const uint32_t index = table_->find(handle);
    if (index == engine::kNoOperation) return Errc::kInvalidArgument;
    o = &(*table_)[index];
  }
  if (!options_.own_thread) progress();  // even if the deadline has passed
  if (!wait_until([o] { return o->state.load(std::memory_order_seq_cst) != engine::OpState::kOpen; },
                  deadline))
    return Errc::kTimeout;
  Status status;
  static_cast<void>(
      release_if_ended(handle, status));  // kInvalidArgument if another thread released it first
  return status;
}

void LocalSession::progress() noexcept {
  if (table_->open_count() == 0 || !try_drive()) return;
  while (step()) {
  }
  check_failures();
  check_deadline(monotonic_now());
  stop_driving();
  if (options_.own_thread && table_->open_count() > 0) stage_->wake_watch();
}

template <typename Predicate>
bool LocalSession::wait_until(Predicate done, Nanos deadline) noexcept {
  callers_.fetch_add(1, std::memory_order_seq_cst);
  const auto sleeper = [](const std::atomic<uint32_t>& word, uint32_t seen, Nanos timeout) {
    futex_wait(word, seen, timeout);
  };
  bool is_done = done();
  while (!is_done && (deadline == engine::kNoDeadline || monotonic_now() < deadline)) {
    if (try_drive()) {
      drive(done, deadline, sleeper);
      stop_driving();
    } else {
      stage_->wake();  // the own thread yields to this one
      wait_for_signal(done, deadline);
    }
    is_done = done();
  }
  const bool was_last = callers_.fetch_sub(1, std::memory_order_seq_cst) == 1;
  if (was_last && options_.own_thread && table_->open_count() > 0) stage_->wake_watch();
  return is_done;
}

template <typename Predicate>
void LocalSession::wait_for_signal(Predicate done, Nanos deadline) noexcept {
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  {
    std::unique_lock lock(mutex_);
    const auto look = [&] { return done() || !driving_.load(std::memory_order_seq_cst); };
    if (deadline == engine::kNoDeadline) {
      changed_.wait(lock, look);
    } else {
      changed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline)),
                          look);
    }
  }
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
}

void LocalSession::signal() noexcept {
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  { const std::lock_guard lock(mutex_); }  // a waiter that has looked is now waiting
  changed_.notify_all();
}

void LocalSession::stop_driving() noexcept {
  driving_.store(false, std::memory_order_seq_cst);
  signal();
}

bool LocalSession::step() noexcept {
  const uint64_t ended = stage_->counters().operations.load(std::memory_order_relaxed);
  const bool worked = stage_->progress();
  if (stage_->mismatch() && end_latch_.code() == Errc::kOk)
    end_for_all(rank_of(stage_->mismatch()->rank), Errc::kMismatch, describe(*stage_->mismatch()),
                Errc::kMismatch);
  if (!stage_->rail_status().ok()) check_rails();
  if (stage_->counters().operations.load(std::memory_order_relaxed) != ended) signal();
  return worked;
}

template <typename Predicate, typename Sleeper>
void LocalSession::drive(Predicate done, Nanos deadline, Sleeper sleeper) noexcept {
  constexpr unsigned kStepsPerLook = 64;  // at the clock
  unsigned idle_steps = 0;
  Nanos now = 0;
  for (unsigned steps = 0; !done();) {
    if (step()) {
      idle_steps = 0;
      if (++steps % kStepsPerLook != 0) continue;
      now = monotonic_now();
    } else if (++idle_steps == 1) {
      now = monotonic_now();
      stall_meter_.note(stage_->pieces_done(), table_->open_count() > 0, now);
    }
    check_failures();
    check_deadline(now);
    if (done() || now >= deadline) return;
    if (idle_steps == 0) continue;
    now = idle(now, idle_steps, deadline, sleeper);
    stall_meter_.extend(stage_->pieces_done(), table_->open_count() > 0, now);
  }
}

// Returns the time afterwards.
template <typename Sleeper>
Nanos LocalSession::idle(Nanos now, unsigned idle_steps, Nanos deadline, Sleeper sleeper) noexcept {
  if (idle_steps <= yields_) {
    ::sched_yield();
    const Nanos after = monotonic_now();
    if (after - now > kLongYield) yields_ = 0;
    return after;
  }
  const Nanos until = std::min({deadline, now + kLongestSleep, operation_deadline(now)});
  if (until > now)
    stage_->sleep(
        [&](const std::atomic<uint32_t>& word, uint32_t seen) { sleeper(word, seen, until - now); });
  yields_ = std::min(yields_ + 1, kYields);
  return monotonic_now();
}

engine::SessionStats LocalSession::stats() {
  engine::SessionStats s;
  const Stage::Counters& counters = stage_->counters();
  s.operations =
      counters.operations.load(std::memory_order_relaxed) + empty_operations_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < rails_.size(); ++i) {
    if (rails_[i] == nullptr) continue;
    const engine::SessionStats r = rails_[i]->stats();
    s.lanes += r.lanes;
    s.reducers = r.reducers;
    s.colocated_reducers = r.colocated_reducers;
    s.lane_connections += r.lane_connections;
    s.bytes_resent += r.bytes_resent;
    s.bytes_copied += r.bytes_copied;
    s.rdma_lanes += r.rdma_lanes;
    s.recovery += r.recovery;
    if (r.slowest.waited > s.slowest.waited)
      s.slowest = {.rank = topology_.ranks_of[r.slowest.rank].front(), .waited = r.slowest.waited};
  }
  // Hosts are missing. Which of its ranks is late, only that host knows.
  s.waiting = waiting_on_rails();
  if (s.waiting.missing_ranks > 0) s.waiting.first_rank = topology_.ranks_of[s.waiting.first_rank].front();
  s.bytes_copied += counters.bytes_copied.load(std::memory_order_relaxed);
  const Nanos now = monotonic_now();
  const bool is_open = table_->open_count() > 0;
  s.longest_stall = stall_meter_.longest(stage_->pieces_done(), is_open, now);
  if (is_open) {
    uint32_t first = 0;
    if (const uint32_t missing = stage_->count_missing(first, [](uint32_t) { return true; }); missing > 0) {
      s.waiting.missing_ranks = missing;
      s.waiting.first_rank = topology_.ranks_of[host_][first];
    }
    s.waiting.waited_ms =
        static_cast<uint32_t>(stall_meter_.current(stage_->pieces_done(), true, now) / kMillisecond);
  }
  return s;
}

Result<void> LocalSession::register_device_memory(std::span<std::byte> /*bytes*/,
                                                  const transport::rdma::DmaBuf& /*dmabuf*/) {
  return fail(Errc::kUnsupported, "the ranks share a host, whose processors cannot access device memory");
}

Status LocalSession::close(Nanos deadline) {
  {
    const std::lock_guard lock(submission_);
    closing_ = true;
  }
  const auto failed = [this] { return end_latch_.code() != Errc::kOk; };
  const bool in_time = wait_until([&] { return table_->open_count() == 0 || failed(); }, deadline);
  // Whoever makes progress looks at failures. From here on the end of a rail is none.
  while (!try_drive()) {
    stage_->wake();
    wait_for_signal([] { return false; }, engine::kNoDeadline);
  }
  check_failures();
  are_rails_complete_.store(false, std::memory_order_release);
  stop_driving();
  const Errc ended = end_latch_.code();
  if (!in_time)
    end_for_all(rank(), Errc::kClosed,
                "rank " + std::to_string(rank()) + " closed the session with open operations",
                Errc::kAborted);
  // Before the rails, which linger: a rank of this host that calls another operation waits for this one.
  watch_->leave();
  // All rails say so before the first one lingers: members of the others wait for this rank too.
  if (deadline == engine::kNoDeadline) deadline = monotonic_now() + options_.linger;
  for (const auto& rail : rails_) {
    if (rail != nullptr) rail->leave();
  }
  Status rails_closed;
  for (const auto& rail : rails_) {
    if (rail == nullptr) continue;
    const Status closed = rail->close(deadline);
    // That others called on after this rank had left is their error; this one has all its results.
    if (rails_closed.ok() && closed != Errc::kRankLeft) rails_closed = closed;
  }
  if (ended == Errc::kOk && is_recorded_.load(std::memory_order_relaxed))
    blackbox_.record(blackbox::EventKind::kRankLeft);
  end_here(wire::kNoRank, Errc::kClosed, "session closed", Errc::kOk);
  stop_thread();
  if (ended != Errc::kOk) return ended;
  return in_time ? rails_closed : Errc::kTimeout;
}

}  // namespace sluice::local
