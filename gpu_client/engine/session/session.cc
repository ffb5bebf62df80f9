#include "gpu_client/engine/session/session.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "blackbox/process_dump.h"
#include "core/clock.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/join/join_vote.h"
#include "gpu_client/engine/trace/bit_record_observer.h"
#include "transport/memory/memory_context.h"
#include "transport/rdma/remote_buffers.h"

namespace sluice::engine {
namespace {

// How long close() waits for the transport to return the last buffers after everything is closed.
constexpr Nanos kDrainTime = kSecond;

std::shared_ptr<BitRecordObserver> create_bit_record(const Identity& identity, const Membership& membership) {
  if (!BitRecordObserver::is_requested()) return nullptr;
  std::string reducers;
  for (const ReducerReservation& r : membership.reservations)
    (reducers += reducers.empty() ? "" : ", ") += r.name;
  return BitRecordObserver::create({.session = identity.session,
                                    .rank = identity.rank,
                                    .ranks = identity.ranks,
                                    .job = identity.job,
                                    .reducers = std::move(reducers)});
}

}  // namespace

Session::Session(SessionOptions options)
    : options_(std::move(options)),
      blackbox_(blackbox::EventSource::of_rank(options_.join.identity.session, options_.join.identity.rank)) {
}

Result<std::unique_ptr<Session>> Session::create(SessionOptions options, const JoinLimit& limit) {
  blackbox::begin_in_library("libsluice");
  std::unique_ptr<Session> session(new Session(std::move(options)));
  const JoinOptions& join = session->options_.join;
  session->blackbox_.record(blackbox::EventKind::kJoining,
                            {.a = join.identity.ranks, .b = join.reducers.size()});
  JoinLimit own_limit = limit;
  // Before the vote, so that a rank without descriptors votes no, and all ranks fail alike. It has some for
  // that again when those of the monitor are closed.
  if (auto made = session->make_parts(); !made) {
    session->monitor_.reset();
    own_limit.own_failure = made.error();
  }
  own_limit.free_descriptors = [&] { session->context_.reset(), session->monitor_.reset(); };
  if (limit.reason) {
    own_limit.reason = [&] {
      Error error = limit.reason();
      return Error{error.code, session->inward(error.text)};
    };
  }
  auto membership = join_session(join, own_limit);
  Result<void> begun =
      membership ? session->begin(*membership) : Result<void>(tl::unexpected(membership.error()));
  if (begun) return session;
  if (own_limit.own_failure) begun = tl::unexpected(*own_limit.own_failure);
  if (membership) session->abandon(*membership, begun.error());
  session->record_join_failure(begun.error());
  return fail(begun.error().code, session->outward(begun.error().text));
}

Result<void> Session::make_parts() {
  SLUICE_ASSIGN_OR_RETURN(monitor, HeartbeatMonitor::acquire());
  SLUICE_ASSIGN_OR_RETURN(context, transport::memory::make_context());
  monitor_ = std::move(monitor);
  context_ = std::move(context);
  return {};
}

std::string Session::outward(const std::string& text) const {
  const auto& names = options_.join.identity.names;
  return names ? names->outward(text) : text;
}

std::string Session::inward(const std::string& text, bool is_whole) const noexcept {
  try {
    if (!options_.join.identity.names) return text;
    return is_whole ? MemberNames::inward_whole(text) : MemberNames::inward(text);
  } catch (const std::exception&) {  // out of memory: an end without a reason
    return {};
  }
}

void Session::abandon(Membership& membership, const Error& error) noexcept {
  if (monitor_id_ != 0) return end_for_all(error.code, error.text, error.code, rank());
  try {
    abort_all(membership.reservations, rank(), error);
  } catch (const std::exception&) {
    // Out of memory: the other ranks see the loss of the connections.
  }
}

void Session::record_join_failure(const Error& error) noexcept {
  blackbox_.record(blackbox::EventKind::kJoinFailed, {.code = error.code}, error.text);
  dump_.request("a session could not be joined");
}

Result<void> Session::begin(Membership& membership) {
  local_reducer_ = std::move(membership.local_reducer);
  ChunkScheduler::Options o;
  o.view_hash = membership.view_hash;
  o.slot_bytes = slot_bytes_ = membership.view.slot_bytes;
  o.incarnation = membership.incarnation;
  o.payload_crc = options_.payload_crc;
  o.keep_results = options_.keep_results;
  o.fault_tolerant = membership.fault_tolerant;
  o.shared_limit = options_.inflight_limit;
  o.rank = options_.join.identity.rank;
  o.ranks = options_.join.identity.ranks;
  o.begin = monotonic_now();
  o.placement = wire::placement_table(membership.view);
  reducer_features_ = ~uint64_t{0};
  for (ReducerReservation& reservation : membership.reservations) {
    reducer_features_ &= reservation.features;
    reservation.paths = std::make_shared<transport::LanePaths>(reservation.lanes.size());
    for (size_t lane = 0; lane < reservation.lanes.size(); ++lane) {
      o.lanes.push_back({.handle = reservation.handle,
                         .slots = reservation.slots,
                         .sparse = sends_sparse(reservation.features),
                         .path = {reservation.paths, &(*reservation.paths)[lane]}});
      lane_names_.push_back(reservation.name + " lane " + std::to_string(lane));
      lane_ids_.push_back({.reducer = reservation.id, .lane = static_cast<uint32_t>(lane)});
    }
    blackbox_.record(blackbox::EventKind::kReducerJoined,
                     {.peer = reservation.id, .a = reservation.lanes.size()}, reservation.name);
  }
  o.blackbox = blackbox_;
  table_ = std::make_unique<OpTable>(static_cast<uint32_t>(o.lanes.size()),
                                     wire::chunk_sizes(membership.view), o.ranks);
  progress_loop_ = std::make_unique<ProgressLoop>(end_latch_, static_cast<ChunkScheduler::Listener&>(*this));
  auto scheduler = ChunkScheduler::create(std::move(o), *table_, *progress_loop_);
  if (!scheduler) return tl::unexpected(scheduler.error());
  scheduler_ = std::move(*scheduler);
  add_observers(membership);
  colocated_reducers_ = static_cast<uint32_t>(std::ranges::count_if(
      membership.view.reducers, [](const wire::ViewReducer& r) { return r.host_rank != wire::kNoRank; }));
  if (const auto& memory = options_.join.identity.lanes.memory)
    ring_registration_ = {memory, scheduler_->ring_memory(), transport::rdma::Memory::Use::kSendAndAdvertise};
  progress_loop_->attach(*scheduler_, *context_);
  if (auto adopted = adopt_lanes(membership.reservations); !adopted) return adopted;
  if (const auto& memory = options_.join.identity.lanes.memory; memory && !memory->first_error().empty())
    log().info("payload is copied for RDMA: " + memory->first_error());
  if (const Status s = scheduler_->begin(); !s.ok())
    return fail(s.code(), "cannot send COMMIT on a lane connection");
  progress_thread_ = std::make_unique<ProgressThread>(*progress_loop_, *scheduler_, *context_);
  if (membership.fault_tolerant) {
    const Recovery::SessionParts parts{*monitor_, *progress_loop_, *scheduler_, *context_, *progress_thread_};
    JoinOptions join = options_.join;
    join.identity.order = membership.order;
    recovery_ = std::make_unique<Recovery>(join, membership, parts, static_cast<Recovery::Listener&>(*this));
  }

  std::vector<ControlPeer> peers;
  for (ReducerReservation& reservation : membership.reservations) {
    peers.push_back({.connection = std::move(reservation.control),
                     .reducer = reservation.id,
                     .heartbeat = Nanos{reservation.heartbeat_ms} * kMillisecond,
                     .timeout = Nanos{reservation.peer_timeout_ms} * kMillisecond,
                     .paths = std::move(reservation.paths)});
  }
  blackbox_.record(blackbox::EventKind::kCommitted,
                   {.a = options_.join.identity.ranks, .b = lane_names_.size()});
  monitor_id_ = monitor_->add(std::move(peers), *this, membership.fault_tolerant, blackbox_);
  if (recovery_) recovery_->begin(monitor_id_);
  begun_.store(true, std::memory_order_release);
  // Sends COMMIT now and not with the first operation, because a reducer that receives nothing on a lane
  // connection cannot tell a late rank from a lost one.
  progress_thread_->progress_once();
  return options_.own_thread ? progress_thread_->start() : Result<void>();
}

bool Session::sends_sparse(uint64_t reducer_features) const noexcept {
  return options_.join.identity.lanes.sparse && (reducer_features & wire::kFeatureSparse) != 0;
}

void Session::add_observers(const Membership& membership) {
  const Identity& identity = options_.join.identity;
  OperationObservers observers = options_.observers;
  // The files of SLUICE_TRACE and SLUICE_BITS are of the user's session.
  if (identity.names == nullptr) {
    trace_ = TraceObserver::create(
        {.session = identity.session, .rank = identity.rank, .ranks = identity.ranks, .job = identity.job});
    if (trace_) observers.push_back(trace_);
    if (auto bits = create_bit_record(identity, membership)) observers.push_back(std::move(bits));
  }
  if (observers.empty()) return;
  recorder_ =
      std::make_unique<OperationRecorder>(*scheduler_, std::move(observers), identity.rank, identity.ranks);
  for (const ReducerReservation& r : membership.reservations)
    recorder_->add_reducer(r.name, static_cast<uint32_t>(r.lanes.size()));
  scheduler_->set_recorder(recorder_.get());
}

Result<void> Session::adopt_lanes(std::vector<ReducerReservation>& reservations) {
  uint32_t i = 0;
  for (ReducerReservation& reservation : reservations) {
    for (transport::tcp::Socket& lane : reservation.lanes) {
      auto ep = context_->adopt(std::move(lane), scheduler_->handler(i), scheduler_->endpoint_options(i));
      if (!ep) return add_context(lane_names_[i], ep.error());
      scheduler_->bind(i, **ep);
      round_trip_ = std::max(round_trip_, (*ep)->path_stats().round_trip);
      ++i;
    }
  }
  scheduler_->set_round_trip(round_trip_);
  return {};
}

Session::~Session() {
  if (recovery_) recovery_->stop();
  if (progress_thread_) progress_thread_->stop();
  if (monitor_ && monitor_id_ != 0) monitor_->remove(monitor_id_);
  if (log_thread_.joinable()) log_thread_.join();
}

Status Session::start(OpRequest request, uint64_t& handle) {
  if (options_.op_timeout > 0) request.deadline = monotonic_now() + options_.op_timeout;
  if (recorder_) request.issued = monotonic_now();
  if (wire::is_block(request.dtype)) {
    if (!accepts_blocks()) return Errc::kUnsupported;
    if (recovery_) recovery_->require_features(wire::kFeatureBlocks);
  }
  {
    const std::lock_guard lock(submission_);
    if (closing_) return Errc::kClosed;
    if (const Errc ended = end_latch_.code(); ended != Errc::kOk) return ended;
    if (memory_.has_device_memory() && !memory_.classify(request)) return Errc::kInvalidArgument;
    if (request.on_device && request.kind != wire::Kind::kAllreduce) return Errc::kUnsupported;
    const auto index = table_->open(request);
    if (!index) return Errc::kExhausted;
    handle = table_->handle_of(*index);
    if ((*table_)[*index].chunk_count == 0) {
      table_->end(*index, Errc::kOk);
      empty_operations_.fetch_add(1, std::memory_order_relaxed);
      return Errc::kOk;
    }
    progress_loop_->submit(*index);
  }
  progress_thread_->notify();
  return Errc::kOk;
}

bool Session::release_if_ended(uint64_t handle, Status& status) {
  const std::lock_guard lock(submission_);
  return table_->release_if_ended(handle, status);
}

Status Session::test(uint64_t handle, bool& done) {
  if (!options_.own_thread) progress_thread_->progress_once();
  Status status;
  done = release_if_ended(handle, status);
  return status;
}

Status Session::wait(uint64_t handle, Nanos deadline) {
  const Operation* o = nullptr;
  {
    const std::lock_guard lock(submission_);
    const uint32_t index = table_->find(handle);
    if (index == kNoOperation) return Errc::kInvalidArgument;
    o = &(*table_)[index];
  }
  if (!options_.own_thread) progress_thread_->progress_once();  // even if the deadline has passed
  const bool ended = progress_thread_->wait(
      [o] { return o->state.load(std::memory_order_seq_cst) != OpState::kOpen; }, deadline);
  if (!ended) return Errc::kTimeout;
  Status status;
  static_cast<void>(
      release_if_ended(handle, status));  // kInvalidArgument if another thread released it first
  return status;
}

SessionStats Session::stats() {
  SessionStats s;
  const uint32_t missing = missing_ranks_.load(std::memory_order_acquire);
  const ChunkScheduler::Counters counters = progress_thread_->counters();
  s.lanes = counters.lanes;
  s.bytes_resent = counters.bytes_resent;
  s.bytes_copied = counters.results_copied + s.lanes.bytes_copied + s.lanes.bytes_copied_out;
  s.rdma_lanes = counters.rdma_lanes;
  s.operations = progress_thread_->operations_done() + empty_operations_.load(std::memory_order_relaxed);
  s.reducers = static_cast<uint32_t>(options_.join.reducers.size());
  s.colocated_reducers = colocated_reducers_;
  s.lane_connections = counters.open_lanes;
  s.slot_bytes = slot_bytes_;
  s.round_trip = round_trip_;
  s.slowest = scheduler_->straggler_stats().slowest();
  s.waiting = {.missing_ranks = missing,
               .first_rank = missing > 0 ? missing_rank_.load(std::memory_order_relaxed) : wire::kNoRank,
               .waited_ms = waited_ms_.load(std::memory_order_relaxed)};
  s.longest_stall = progress_thread_->longest_stall(table_->open_count() > 0, monotonic_now());
  if (recovery_) s.recovery = recovery_->stats();
  return s;
}

Result<void> Session::set_reducers(std::optional<config::Pool> pool) {
  SLUICE_RETURN_IF_ERROR(may_set_reducers());
  return recovery_->set_reducers(std::move(pool));
}

Result<void> Session::may_set_reducers() const {
  if (const Errc ended = end_latch_.code(); ended != Errc::kOk) return fail(ended, reason());
  if (!recovery_)
    return fail(Errc::kUnsupported, "reducers cannot be changed: the session is not fault-tolerant");
  return {};
}

// A session that passes the first checks is not fault-tolerant. Its lane connections never change, so this
// thread may read them.
Result<void> Session::check_device_memory_support() {
  const auto refuse = [](std::string reason) { return fail(Errc::kUnsupported, std::move(reason)); };
  if (!options_.device_memory) return refuse("device memory is experimental; set SLUICE_GDR=1 to enable it");
  if (options_.keep_results) return refuse("results in device memory cannot be kept; set keep_results to 0");
  const uint32_t lanes = scheduler_->lane_count();
  if (const uint32_t over_rdma = progress_thread_->counters().rdma_lanes; over_rdma < lanes) {
    return refuse("device memory requires RDMA, but " + std::to_string(lanes - over_rdma) + " of " +
                  std::to_string(lanes) + " lane connections do not use it");
  }
  for (uint32_t i = 0; i < lanes; ++i) {
    const uint32_t slots = scheduler_->lane(i).slots();
    // With more slots than buffers that can be advertised, a result could arrive before its buffer was
    // advertised.
    if (slots <= transport::rdma::kMaxAdvertisedBuffers) continue;
    return refuse(
        lane_names_[i] + " has " + std::to_string(slots) + " slots, but device memory allows at most " +
        std::to_string(transport::rdma::kMaxAdvertisedBuffers) + "; raise slot_bytes or lower window_bytes");
  }
  return {};
}

Result<void> Session::register_device_memory(std::span<std::byte> bytes,
                                             const transport::rdma::DmaBuf& dmabuf) {
  if (auto supported = check_device_memory_support(); !supported) return supported;
  return memory_.add_device(bytes, dmabuf);
}

void Session::leave() noexcept {
  {
    const std::lock_guard lock(submission_);
    closing_ = true;
  }
  if (table_->open_count() == 0 && end_latch_.code() == Errc::kOk) say_leaving();
}

void Session::say_leaving() noexcept {
  if (leaving_.exchange(true, std::memory_order_acq_rel)) return;
  blackbox_.record(blackbox::EventKind::kRankLeft);
  progress_loop_->leave();
  monitor_->leave(monitor_id_);
}

Status Session::close(Nanos deadline) {
  {
    const std::lock_guard lock(submission_);
    closing_ = true;
  }
  if (deadline == kNoDeadline) deadline = monotonic_now() + options_.linger;
  const auto failed = [this] { return end_latch_.code() != Errc::kOk; };
  bool in_time = progress_thread_->wait([&] { return table_->open_count() == 0 || failed(); }, deadline);
  if (!failed()) {
    say_leaving();
    const auto left = [&] { return left_.load(std::memory_order_seq_cst) || failed(); };
    in_time = progress_thread_->wait(left, deadline) && in_time;
  }
  if (recovery_) recovery_->stop();
  const Errc ended = end_latch_.code();
  end_session(Errc::kClosed, "session closed");
  progress_thread_->wait([this] { return progress_loop_->is_drained(); }, monotonic_now() + kDrainTime);
  progress_thread_->stop();
  monitor_->remove(monitor_id_);
  monitor_id_ = 0;
  // The other ranks may still need results of the reducer in this process.
  if (local_reducer_ && ended == Errc::kOk) local_reducer_->wait_for_leave(deadline);
  local_reducer_.reset();
  if (ended != Errc::kOk) return ended;
  return in_time ? Errc::kOk : Errc::kTimeout;
}

void Session::end_for_all(Errc code, const std::string& reason, Errc code_for_others,
                          Rank at_fault) noexcept {
  blackbox_.record(blackbox::EventKind::kAborted, {.code = code_for_others}, reason);
  dump_.request("a session was aborted");
  try {
    end_latch_.preset(code, reason, at_fault);
    monitor_->abort(monitor_id_, code_for_others, at_fault, reason);
    end_session(code, reason, at_fault);
  } catch (const std::exception&) {
    end_session(code, {});
  }
}

}  // namespace sluice::engine
