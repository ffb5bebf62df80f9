// Recovery's decisions, executed: on the progress loop, by reconnectors and by the heartbeat monitor.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "gpu_client/engine/recovery/recovery.h"

namespace sluice::engine {

// Runs `work` on the progress loop and waits for it. In a session without its own thread this thread runs the
// loop when the caller does not. Returns false on stop().
bool Recovery::run_on_loop(std::function<void()> work) {
  struct Turn {
    std::mutex mutex;
    std::condition_variable changed;
    std::exception_ptr failure;
    bool done = false, cancelled = false;
  };
  const auto turn = std::make_shared<Turn>();
  parts_.progress_loop.post([turn, w = std::move(work)] {
    const std::lock_guard lock(turn->mutex);
    if (turn->cancelled) return;
    try {
      w();
    } catch (...) {
      turn->failure = std::current_exception();
    }
    turn->done = true;
    turn->changed.notify_all();
  });
  constexpr auto kTurn = std::chrono::milliseconds(1);
  for (;;) {
    parts_.progress_thread.notify();
    parts_.progress_thread.progress_once();
    std::unique_lock lock(turn->mutex);
    if (turn->changed.wait_for(lock, kTurn, [&] { return turn->done; })) {
      if (turn->failure) std::rethrow_exception(turn->failure);
      return true;
    }
    const std::lock_guard stop_lock(mutex_);
    if (stopping_) {
      turn->cancelled = true;
      return false;
    }
  }
}

void Recovery::reconnect(ReducerState& r, bool control, uint64_t lanes) {
  r.broken_control |= control;
  r.broken_lanes |= lanes;
  if (!r.reconnector) {
    ReconnectorOptions options;
    options.name = r.name;
    options.address = r.address;
    options.identity = options_.identity;
    options.identity.lanes.same_process = r.same_process;
    options.incarnation = incarnation_;
    options.view_hash = view_hash_;
    options.reducer = r.id;
    options.handle = r.handle;
    options.slots = r.slots;
    options.resume_timeout = options_.resume_timeout;
    r.reconnector =
        std::make_unique<Reconnector>(std::move(options), static_cast<Reconnector::Listener&>(*this));
  }
  if (auto requested = r.reconnector->request(control, lanes); !requested)
    suspect(r, Errc::kReducerLost, "cannot reopen its connections: " + requested.error().text);
}

void Recovery::on_control_reconnected(uint64_t reducer_id, ControlConnection connection) noexcept {
  // std::function requires a copyable callable.
  auto held = std::make_shared<ControlConnection>(std::move(connection));
  post([this, reducer_id, held] { replace_control(*find_reducer(reducer_id), std::move(*held)); });
}

void Recovery::on_lane_reconnected(uint64_t reducer_id, uint32_t lane,
                                   transport::tcp::Socket socket) noexcept {
  auto held = std::make_shared<transport::tcp::Socket>(std::move(socket));
  post([this, reducer_id, lane, held] { resume_lane(*find_reducer(reducer_id), lane, std::move(*held)); });
}

void Recovery::on_reconnect_failed(uint64_t reducer_id, Errc /*code*/, std::string text) noexcept {
  post([this, reducer_id, cause = std::move(text)] {
    suspect(*find_reducer(reducer_id), Errc::kReducerLost, cause);
  });
}

void Recovery::replace_control(ReducerState& r, ControlConnection connection) {
  if (r.lost) return;
  parts_.monitor.replace_connection(monitor_id_, r.index, std::move(connection));
  r.broken_control = false;
  blackbox_.record(blackbox::EventKind::kConnectionResumed,
                   {.peer = r.id, .a = blackbox::kControlConnection});
  counters_.add_resumed_connection();
  // Repeats messages that the reducer may have missed.
  if (follower_.history().version() != 0) send_known_changes(r);
  send_drain_requests();
  if (is_recovered()) end_stall("connections resumed");
}

void Recovery::resume_lane(const ReducerState& r, uint32_t lane, transport::tcp::Socket socket) {
  if (r.lost) return;
  const uint32_t index = r.first_lane + lane;
  static_cast<void>(run_on_loop([this, index, &socket] { bind_lane(index, socket); }));
}

// Thread of the progress loop. A socket that cannot be used counts as a lost connection.
void Recovery::bind_lane(uint32_t lane, transport::tcp::Socket& socket) {
  LaneConnection& connection = parts_.scheduler.lane(lane);
  if (parts_.scheduler.has_ended() || connection.is_bound()) return;
  auto ep = parts_.context.adopt(std::move(socket), parts_.scheduler.handler(lane),
                                 parts_.scheduler.endpoint_options(lane));
  if (!ep) return lane_lost(lane, Errc::kReset, 0, "");
  parts_.scheduler.bind(lane, **ep);
  static_cast<void>(
      connection.resume());  // fails only while the endpoint closes, which is reported as a loss
}

// The arbiter has removed the reducer: closes its connections.
void Recovery::close_reducer(ReducerState& r) {
  if (r.draining)
    parts_.monitor.send(monitor_id_, r.index, wire::Suspect{.reducer = r.id, .code = Errc::kDraining});
  if (!std::exchange(r.lost, true)) {
    if (!r.draining && is_unreachable(r)) {
      stall_by_loss_ = true;
      counters_.add_lost_reducer();
    }
    blackbox_.record(blackbox::EventKind::kReducerRemoved, {.peer = r.id}, "removed by the arbiter");
    if (watch_) check_watch(watch_->reducer_removed(r.id));
  }
  r.reconnector.reset();
  r.new_lanes.clear();
  parts_.monitor.drop(monitor_id_, r.index);
  static_cast<void>(run_on_loop([this, &r] {
    for (uint32_t lane = 0; lane < r.lanes; ++lane)
      parts_.scheduler.lane(r.first_lane + lane).close(Errc::kReset);
  }));
}

// VIEW_QUERY does not say why a reducer is removed. A lost reducer has broken or silent connections at this
// rank too; a reducer that rank 0 removed from its list has not.
bool Recovery::is_unreachable(const ReducerState& r) const {
  return r.broken_control || r.broken_lanes != 0 || parts_.monitor.is_unresponsive(monitor_id_, r.index);
}

// Without a thread for PoolWatch the session continues with the reducers that it has.
void Recovery::check_watch(Result<void> result) {
  if (!result) log_.warn("cannot watch for new reducers: " + result.error().text);
}

std::vector<config::Endpoint> Recovery::usable_reducers() const {
  const std::lock_guard lock(mutex_);
  return usable_reducers_;
}

std::vector<config::Endpoint> Recovery::find_usable_reducers() {
  std::vector<config::Endpoint> whole;
  std::vector<config::Endpoint> broken;
  for (const wire::ViewReducer& v : follower_.view().reducers) {
    const ReducerState* const r = find_reducer(v.id);
    if (!v.alive || v.host_rank != wire::kNoRank || r == nullptr || r->lost || r->draining) continue;
    config::Endpoint address = r->address;
    if (options_.identity.tls && !address.name.empty()) address.host = address.name;
    (r->broken_control || r->broken_lanes != 0 ? broken : whole).push_back(std::move(address));
  }
  return whole.empty() ? broken : whole;
}

Recovery::ReducerState& Recovery::append_reducer(const ReducerReservation& reservation) {
  ReducerState& r = reducers_.emplace_back();
  r.index = reducers_.size() - 1;
  r.id = reservation.id;
  r.name = reservation.name;
  r.address = reservation.address;
  r.handle = reservation.handle;
  r.slots = reservation.slots;
  r.sparse = options_.identity.lanes.sparse && (reservation.features & wire::kFeatureSparse) != 0;
  r.same_process = reservation.same_process;
  r.lanes = static_cast<uint32_t>(reservation.lanes.size());
  return r;
}

Recovery::ReducerState* Recovery::find_reducer(uint64_t reducer_id) noexcept {
  const auto found = std::ranges::find(reducers_, reducer_id, &ReducerState::id);
  return found == reducers_.end() ? nullptr : &*found;
}

// The placement table of the view numbers the lanes of its reducers in order. The result has the
// corresponding indices of lane connections in the scheduler. A reducer whose share is 0 keeps its
// connections: a later view may need it.
Recovery::Placement Recovery::placement() {
  const wire::View& view = follower_.view();
  std::vector<uint32_t> lanes;
  Placement result;
  for (size_t i = 0; i < view.reducers.size(); ++i) {
    const wire::ViewReducer& r = view.reducers[i];
    for (uint32_t lane = 0; lane < r.lanes; ++lane) {
      lanes.push_back(find_reducer(r.id)->first_lane + lane);
      if (r.alive) result.standby.push_back(lanes.back());
    }
  }
  result.table = wire::placement_table(view);
  for (uint32_t& entry : result.table) entry = lanes[entry];
  return result;
}

void Recovery::try_restart() {
  bool restarted = false;
  std::vector<size_t> added;
  const Placement places = placement();
  const ChunkScheduler::View view{
      .version = follower_.view().version, .hash = follower_.view_hash(), .base = follower_.base()};
  const bool ran = run_on_loop([&] {
    if (!parts_.scheduler.is_quiescent() || parts_.scheduler.has_ended()) return;
    parts_.scheduler.restart(view, places.table, places.standby);
    for (ReducerState& r : reducers_) {
      if (r.lost) r.new_lanes.clear();  // suspected since: another view change will follow
      for (uint32_t lane = 0; lane < r.new_lanes.size(); ++lane)
        bind_lane(r.first_lane + lane, r.new_lanes[lane]);
      if (!r.new_lanes.empty()) added.push_back(r.index);
      r.new_lanes.clear();
    }
    counters_.add_view_change();  // before an operation of the new view can end
    restarted = true;
  });
  if (!ran || !restarted) return;
  restart_pending_ = false;
  if (meter_) update_rate();
  const auto alive =
      static_cast<uint64_t>(std::ranges::count_if(follower_.view().reducers, &wire::ViewReducer::alive));
  blackbox_.record(blackbox::EventKind::kViewChanged, {.a = view.version, .b = alive});
  if (OperationRecorder* const recorder = parts_.scheduler.recorder()) {
    recorder->report_view_change(view.version, static_cast<uint32_t>(alive));
  }
  for (const size_t reducer_index : added) {
    parts_.monitor.commit_peer(monitor_id_, reducer_index, {.incarnation = incarnation_});
    if (watch_) watch_->set_confirmed(reducers_[reducer_index].id);
  }
  send_known_changes();
  send_drain_requests();
  end_stall("view changed");
}

}  // namespace sluice::engine
