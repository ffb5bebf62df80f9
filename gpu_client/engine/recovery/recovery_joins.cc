// Recovery's handling of reducers that are added to a running session or removed from its list of reducers.
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"
#include "gpu_client/engine/join/colocation_agreement.h"
#include "gpu_client/engine/join/reducer_reservation.h"
#include "gpu_client/engine/recovery/recovery.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::engine {
namespace {

// The time for all connections to an added reducer. Ranks that have joined it contribute nothing until all
// ranks have answered, so this bounds the stall that one slow rank causes.
constexpr Nanos kJoinTimeout = 5 * kSecond;
// The same after the loss of another reducer: chunks wait for the view change, which waits for the join.
constexpr Nanos kShortJoinTimeout = 500 * kMillisecond;
// A session can name a limited number of removed reducers. This many are reserved for those that it has.
constexpr size_t kSpareRemovals = 64;

constexpr const char* kNoRoom = ": exceeds the limits of the session's view";

}  // namespace

Nanos Recovery::reducer_join_timeout() const noexcept {
  return std::min(options_.connect_timeout, kJoinTimeout);
}

Result<void> Recovery::set_reducers(std::optional<config::Pool> pool) {
  if (!watch_) return {};
  return pool ? watch_->set_pool(std::move(*pool)) : watch_->reread();
}

void Recovery::on_reducer_found(const config::Endpoint& address, ReducerReservation reservation) {
  // std::function requires a copyable callable.
  auto held = std::make_shared<ReducerReservation>(std::move(reservation));
  post([this, address, held] { propose_reducer(address, std::move(*held)); });
}

void Recovery::on_unlisted(std::vector<uint64_t> reducers) {
  post([this, unlisted = std::move(reducers)] { remove_unlisted(unlisted); });
}

// Proposes the reducer to all. Its reservation is stored until the arbiter asks all ranks to join the
// reducer.
void Recovery::propose_reducer(const config::Endpoint& address, ReducerReservation reservation) {
  const uint64_t id = reservation.id;
  const uint64_t missing = required_features_.load(std::memory_order_relaxed) & ~reservation.features;
  if ((missing & wire::kFeatureRateChanges) != 0)
    return log_.warn(reservation.name + " not added: its version cannot follow the rates of links");
  if ((missing & wire::kFeatureBlocks) != 0)
    return log_.warn(reservation.name +
                     " not added: its version does not sum block types, which the session uses");
  const wire::MembershipHistory& history = follower_.history();
  // An added reducer may be removed again, as may the present ones, and VIEW_QUERY must have room for that.
  const size_t ever = history.first().size() + history.added().size();
  const size_t spare = std::min(ever - history.removed().size(), kSpareRemovals);
  const bool full =
      std::max(history.added().size(), history.removed().size() + spare) >= wire::kMaxViewChange ||
      ever >= wire::kMaxReducers;
  if (full) {
    return log_.warn(reservation.name +
                     " not added: the session has reached its maximum number of membership changes");
  }
  if (!follower_.add(id, address)) return;
  reservations_.insert_or_assign(id, std::move(reservation));
  send_known_changes();
}

// Every rank joins the reducer because of the same VIEW_QUERY.
void Recovery::join_reducer(const ViewFollower::Addition& addition) {
  if (const auto reservation = reservations_.find(addition.id); reservation != reservations_.end()) {
    ReducerReservation stored = std::move(reservation->second);
    reservations_.erase(reservation);
    if (!add_reducer(stored)) reject_reducer(addition.id, stored.name + kNoRoom);
    return;
  }
  const auto in_progress = [&](const PendingJoin& j) { return j.reducer_id == addition.id && !j.abandoned; };
  if (std::ranges::none_of(pending_joins_, in_progress)) start_join(addition);
}

void Recovery::start_join(const ViewFollower::Addition& addition) {
  if (!addition.address) return reject_reducer(addition.id, "no rank has sent its address");
  PendingJoin j;
  j.reducer_id = addition.id;
  j.name = reducer_name(*addition.address);
  j.deadline = monotonic_now() + reducer_join_timeout();
  j.interrupt_event = transport::tcp::Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const Deadline deadline(j.deadline, j.interrupt_event.fd());
  auto thread = start_thread("sluice-join", [this, addition, deadline] {
    // An exception that left the thread would terminate the application.
    auto reservation = std::make_shared<Result<ReducerReservation>>(fail(Errc::kExhausted, "out of memory"));
    try {
      *reservation =
          join_added_reducer(options_, first_view_, incarnation_, *addition.address, addition.id, deadline);
    } catch (const std::exception& e) {
      *reservation = fail(Errc::kExhausted, e.what());
    }
    post([this, id = addition.id, reservation] { finish_join(id, std::move(*reservation)); });
  });
  if (!thread) return reject_reducer(addition.id, thread.error().text);
  j.thread = std::move(*thread);
  pending_joins_.push_back(std::move(j));
}

void Recovery::finish_join(uint64_t reducer_id, Result<ReducerReservation> reservation) {
  const auto j = std::ranges::find(pending_joins_, reducer_id, &PendingJoin::reducer_id);
  SLUICE_ASSERT(j != pending_joins_.end());
  j->thread.join();  // does not block: posting this event was its last action
  const bool needed = !j->abandoned && !follower_.history().is_removed(reducer_id);
  pending_joins_.erase(j);
  if (needed && !reservation) reject_reducer(reducer_id, reservation.error().text);
  if (needed && reservation && !add_reducer(*reservation))
    reject_reducer(reducer_id, reservation->name + kNoRoom);
  answer_query();
}

bool Recovery::add_reducer(ReducerReservation& reservation) {
  const std::vector<uint64_t>& worker_rates = first_view_.worker_rates;
  const uint64_t rate = worker_rates.empty() ? 0
                                             : assume_reducer_rate(reservation.link_rate,
                                                                   reservation.address.weight, worker_rates);
  if (!follower_.set_joined(reservation.id, static_cast<uint16_t>(reservation.lanes.size()), rate))
    return false;
  const auto paths = std::make_shared<transport::LanePaths>(reservation.lanes.size());
  const auto index = parts_.monitor.add_joining_peer(
      monitor_id_, {.connection = std::move(reservation.control),
                    .reducer = reservation.id,
                    .heartbeat = Nanos{reservation.heartbeat_ms} * kMillisecond,
                    .timeout = Nanos{reservation.peer_timeout_ms} * kMillisecond,
                    .paths = paths});
  if (!index) return false;
  ReducerState& r = append_reducer(reservation);
  SLUICE_ASSERT(r.index == *index);
  blackbox_.record(blackbox::EventKind::kReducerJoined, {.peer = r.id, .a = r.lanes}, r.name);
  if (stall_reason_.empty()) stall_reason_ = r.name + ": added to the session";
  r.new_lanes = std::move(reservation.lanes);
  return run_on_loop([this, &r, paths] {
    r.first_lane = parts_.scheduler.lane_count();
    for (uint32_t lane = 0; lane < r.lanes; ++lane)
      parts_.scheduler.add_lane(
          {.handle = r.handle, .slots = r.slots, .sparse = r.sparse, .path = {paths, &(*paths)[lane]}});
    if (OperationRecorder* const recorder = parts_.scheduler.recorder())
      recorder->add_reducer(r.name, r.lanes);
  });
}

void Recovery::reject_reducer(uint64_t reducer_id, const std::string& reason) {
  log_.warn("reducer not added to the session: " + reason);
  blackbox_.record(blackbox::EventKind::kReducerRejected, {.peer = reducer_id}, reason);
  if (watch_) check_watch(watch_->reducer_removed(reducer_id));
  if (!follower_.suspect(reducer_id)) return;
  parts_.monitor.send_all(monitor_id_, wire::Suspect{.reducer = reducer_id, .code = Errc::kReducerLost});
}

void Recovery::cancel_join(uint64_t reducer_id) {
  for (PendingJoin& j : pending_joins_) {
    if (j.reducer_id == reducer_id && !std::exchange(j.abandoned, true)) j.interrupt();
  }
}

void Recovery::shorten_join_deadlines() {
  const Nanos most = monotonic_now() + kShortJoinTimeout;
  for (PendingJoin& j : pending_joins_) j.deadline = std::min(j.deadline, most);
}

void Recovery::expire_joins() {
  const Nanos now = monotonic_now();
  bool ended = false;
  for (PendingJoin& j : pending_joins_) {
    if (j.abandoned || now < j.deadline) continue;
    j.abandoned = ended = true;
    j.interrupt();
    reject_reducer(j.reducer_id, j.name + ": join timed out");
  }
  if (ended) answer_query();
}

// Suspects all of them together, so that the arbiter can remove them in one view change. Keeps them if no
// other reducer would be left.
void Recovery::remove_unlisted(const std::vector<uint64_t>& reducers) {
  const auto stays = [&](const ReducerState& r) {
    return !r.lost && follower_.history().is_active(r.id) &&
           std::ranges::find(reducers, r.id) == reducers.end();
  };
  if (std::ranges::none_of(reducers_, stays)) return;
  for (const uint64_t id : reducers) {
    ReducerState* const r = find_reducer(id);
    if (r != nullptr && !r->lost) suspect(*r, Errc::kShutdown, "no longer in the list of reducers");
  }
}

}  // namespace sluice::engine
