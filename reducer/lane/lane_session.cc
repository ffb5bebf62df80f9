#include "reducer/lane/lane_session.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"

namespace sluice::reducer {

LaneSession::LaneSession(const SessionPlan& plan, SlotArena arena)
    : plan_(plan),
      groups_(group_count(plan.ranks)),
      owned_arena_(std::make_shared<const SlotArena>(std::move(arena))),
      arena_(*owned_arena_),
      chunks_(plan.slots),
      sent_results_(plan.slots),
      waited_for_(plan.ranks),
      health_(plan.health ? std::make_unique<HealthMonitor>(plan.ranks, plan.slots) : nullptr),
      sources_(std::max<size_t>(groups_, kernels::kGroup)),
      tasks_(size_t{plan.slots} * (groups_ + 1)),
      view_{.version = plan.view_version, .hash = plan.view_hash} {
  connections_.reserve(plan.ranks);
  for (Rank r = 0; r < plan.ranks; ++r)
    connections_.push_back(std::make_unique<RankConnection>(*this, r, view_));
  for (ChunkSlot& c : chunks_) c.group_arrived.resize(groups_);
}

void LaneSession::attach(Rank rank, transport::Endpoint& ep) noexcept {
  RankConnection& conn = connection(rank);
  SLUICE_ASSERT(conn.state_ == RankConnection::State::kAbsent ||
                (plan_.fault_tolerant && conn.endpoint_ == nullptr));
  conn.endpoint_ = &ep;
  conn.next_advertised_ = conn.next_contribution_;
  conn.counted_ = {};
  conn.loss_detector_.start(ep);
  conn.path_.start();
  conn.has_unsampled_ = true;
  conn.state_ = RankConnection::State::kAttached;
  conn.attached_at_ = now();
  leave_idle();
  conn.down_since_.store(0, std::memory_order_relaxed);
  ++open_connections_;
  counters_->attached.add(1);
}

bool LaneSession::replace(Rank rank, transport::tcp::Socket& socket) noexcept {
  RankConnection& conn = connection(rank);
  if (!plan_.fault_tolerant || conn.endpoint_ == nullptr) return false;
  conn.next_socket_ = std::move(socket);
  conn.endpoint_->close(Errc::kReset);
  return true;
}

LaneSession::PendingConnection LaneSession::take_pending_connection() noexcept {
  const auto due = std::ranges::find_if(
      connections_, [](const auto& c) { return c->endpoint_ == nullptr && c->next_socket_.valid(); });
  SLUICE_ASSERT(due != connections_.end());
  --pending_connections_;
  return {(*due)->rank_, std::exchange((*due)->next_socket_, {})};
}

void LaneSession::attach_failed(Rank rank) noexcept {
  RankConnection& conn = connection(rank);
  conn.state_ = RankConnection::State::kClosed;
  conn.close_reason_ = Errc::kSystem;
  conn.down_since_.store(std::max<Nanos>(now(), 1), std::memory_order_relaxed);
  count_reason(counters_->closed, Errc::kSystem);
  note_events();
}

void LaneSession::close_rank(Rank rank) noexcept {
  RankConnection& conn = connection(rank);
  conn.drop_next_socket();  // attached before this command
  if (conn.endpoint_ != nullptr) conn.endpoint_->close(Errc::kReset);
}

void LaneSession::on_result_sent(RankConnection& conn, transport::Cookie view) noexcept {
  --conn.pending_puts_;
  if (view != view_.version) --stale_puts_;
}

void LaneSession::on_connection_closed(RankConnection& conn, Errc reason) noexcept {
  --open_connections_;
  counters_->detached.add(1);
  count_reason(counters_->closed, reason);
  if (conn.next_socket_.valid()) ++pending_connections_;
  note_events();
  if (plan_.fault_tolerant && conn.exceeds_bad_frame_limit(reason) && !conn.has_left_session() && !ended() &&
      conn.bad_frames_ == RankConnection::BadFrames::kTolerated)
    conn.bad_frames_ = RankConnection::BadFrames::kExceeded;
  complete_without_leavers();
}

void LaneSession::end() noexcept {
  life_ = Life::kEnding;
  note_events();
  pending_connections_ = 0;
  if (counters_ != nullptr) operation_timer_.finish(*counters_);
  for (const auto& conn : connections_) {
    conn->drop_next_socket();
    if (conn->endpoint_ == nullptr) continue;
    if (!abort_body_.empty()) {
      const auto header = wire::control_header(wire::FrameType::kAbort, abort_body_, plan_.handle);
      // Best effort: the control connection carries the same ABORT.
      (void)conn->endpoint_->put(header, {}, abort_body_, kControlCookie);
    }
    conn->endpoint_->shutdown();
  }
}

void LaneSession::tick(Nanos frame_timeout) noexcept {
  const bool samples_paths = now() >= next_path_sample_;
  if (samples_paths) next_path_sample_ = now() + transport::PathMonitor::kInterval;
  bool is_idle = life_ == Life::kRunning;
  for (const auto& conn : connections_) {
    if (conn->endpoint_ == nullptr) continue;
    is_idle &= !conn->add_counters() && conn->state_ == RankConnection::State::kCommitted;
    if (samples_paths && conn->sample_path(now())) is_idle = false;
    // A rank's first connection sends COMMIT after the verdict; a later one sends RESUME at once.
    if (conn->committed_ && conn->state_ == RankConnection::State::kAttached &&
        now() - conn->attached_at_ >= frame_timeout)
      conn->endpoint_->close(Errc::kTimeout);
    if (life_ == Life::kEnding && close_now_.load(std::memory_order_relaxed))
      conn->endpoint_->close(Errc::kAborted);
  }
  const bool waits = publish_missing();
  is_idle_ = is_idle && !waits;
  work_->tick_due[place_] = is_idle_ ? now() + kIdleTick : 0;
}

bool LaneSession::report_events(SpscRing<LaneEvent>& events) noexcept {
  const auto push = [&](LaneEvent event) {
    event.session = this;
    return events.try_push(event);
  };
  for (const auto& conn : connections_) {
    if (conn->state_ == RankConnection::State::kClosed) {
      if (!push({.kind = LaneEvent::Kind::kClosed, .rank = conn->rank_, .code = conn->close_reason_}))
        return false;
      conn->state_ = RankConnection::State::kReported;
    }
    if (conn->bad_frames_ == RankConnection::BadFrames::kExceeded) {
      if (!push(
              {.kind = LaneEvent::Kind::kTooManyBadFrames, .rank = conn->rank_, .code = conn->close_reason_}))
        return false;
      conn->bad_frames_ = RankConnection::BadFrames::kReported;
    }
  }
  if (failure_.kind != LaneEvent::Kind::kNone) {
    if (!push(failure_)) return false;
    failure_.kind = LaneEvent::Kind::kNone;
  }
  if (life_ == Life::kEnding && open_connections_ == 0) return push({.kind = LaneEvent::Kind::kReleased});
  events_due_ = false;
  return false;
}

bool LaneSession::publish_missing() noexcept {
  const ChunkSlot& c = chunks_[next_result_ % plan_.slots];
  if (c.state != ChunkState::kFilling) {
    missing_since_.store(0, std::memory_order_relaxed);
    missing_count_.store(0, std::memory_order_relaxed);
    return false;
  }
  uint32_t count = 0;
  for (const auto& conn : connections_) {
    if (has_contributed(*conn, next_result_)) continue;
    if (count < wire::kMaxNamedRanks) missing_ranks_[count].store(conn->rank_, std::memory_order_relaxed);
    ++count;
  }
  missing_count_.store(count, std::memory_order_relaxed);
  missing_since_.store(c.first_arrival, std::memory_order_relaxed);
  return true;
}

LaneSession::MissingRanks LaneSession::missing() const noexcept {
  MissingRanks m;
  m.since = missing_since_.load(std::memory_order_relaxed);
  m.count = missing_count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < std::min<size_t>(m.count, wire::kMaxNamedRanks); ++i)
    m.ranks[i] = missing_ranks_[i].load(std::memory_order_relaxed);
  return m;
}

}  // namespace sluice::reducer
