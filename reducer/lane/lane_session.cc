#include "reducer/lane/lane_session.h"

#include <algorithm>

#include "core/assert.h"

namespace sluice::reducer {

LaneSession::LaneSession(const SessionPlan& plan, SlotArena arena)
    : plan_(plan),
      groups_(group_count(plan.ranks)),
      arena_(std::move(arena)),
      chunks_(plan.slots),
      sources_(std::max<size_t>(groups_, kernels::kGroup)),
      tasks_(size_t{plan.slots} * (groups_ + 1)) {
  links_.reserve(plan.ranks);
  for (Rank r = 0; r < plan.ranks; ++r) links_.push_back(std::make_unique<RankLink>(*this, r));
  for (ChunkSlot& c : chunks_) c.group_arrived.resize(groups_);
}

void LaneSession::attach(Rank rank, transport::Endpoint& ep) noexcept {
  RankLink& l = link(rank);
  SLUICE_ASSERT(l.state_ == RankLink::State::kAbsent);
  l.endpoint_ = &ep;
  l.loss_watch_.begin(ep);
  l.state_ = RankLink::State::kAttached;
  l.down_since_.store(0, std::memory_order_relaxed);
  ++open_links_;
}

void LaneSession::never_attached(Rank rank) noexcept {
  RankLink& l = link(rank);
  l.state_ = RankLink::State::kClosed;
  l.close_reason_ = Errc::kSystem;
  counters_->count_close(Errc::kSystem);
  report_due_ = true;
}

void LaneSession::rank_left(Rank rank) noexcept {
  RankLink& l = link(rank);
  if (l.left_) return;
  l.left_ = true;
  ++leaves_pending_;
  leaver_limit_ = std::min(leaver_limit_, l.next_contribution_);
  for (const auto& other : links_) {
    if (other->next_contribution_ > l.next_contribution_) {
      fail(Errc::kRankLeft, rank, "rank %u left the session while others were ahead of it", rank);
      return;
    }
  }
  check_leaves();
}

void LaneSession::close_rank(Rank rank) noexcept {
  if (link(rank).endpoint_ != nullptr) link(rank).endpoint_->close(Errc::kReset);
}

void LaneSession::check_leaves() noexcept {
  if (leaves_pending_ == 0) return;
  for (const auto& l : links_) {
    if (!l->left_ || l->leave_done_) continue;
    const bool done = std::ranges::all_of(links_, [&](const auto& other) {
      return other->endpoint_ == nullptr || other->results_sent_ >= l->next_contribution_;
    });
    if (!done) continue;
    l->leave_done_ = true;
    --leaves_pending_;
    report_due_ = true;
  }
}

void LaneSession::result_sent(RankLink& link, Status status) noexcept {
  if (!status.ok()) return;
  ++link.results_sent_;
  check_leaves();
}

void LaneSession::link_closed(Errc reason) noexcept {
  --open_links_;
  counters_->count_close(reason);
  report_due_ = true;
  check_leaves();
}

void LaneSession::end() noexcept {
  ending_ = true;
  report_due_ = true;
  for (const auto& l : links_) {
    if (l->endpoint_ == nullptr) continue;
    if (!abort_body_.empty()) {
      const auto header = wire::control_header(wire::FrameType::kAbort, abort_body_, plan_.handle);
      // Best effort: the control connection carries the same words.
      (void)l->endpoint_->put(header, {}, abort_body_, ~transport::Cookie{0});
    }
    l->endpoint_->shutdown();
  }
}

void LaneSession::tick() noexcept {
  for (const auto& l : links_) {
    if (l->endpoint_ == nullptr) continue;
    l->account();
    if (ending_ && close_now_.load(std::memory_order_relaxed)) l->endpoint_->close(Errc::kAborted);
  }
  publish_missing();
}

bool LaneSession::report(SpscRing<LaneEvent>& events) noexcept {
  const auto push = [&](LaneEvent event) {
    event.session = this;
    return events.try_push(event);
  };
  for (const auto& l : links_) {
    if (l->leave_done_ && !l->leave_reported_) {
      if (!push({.kind = LaneEvent::Kind::kLeaveDone, .rank = l->rank_})) return false;
      l->leave_reported_ = true;
    }
    if (l->state_ == RankLink::State::kClosed && !l->close_reported_) {
      if (!push({.kind = LaneEvent::Kind::kClosed, .rank = l->rank_, .code = l->close_reason_})) return false;
      l->close_reported_ = true;
    }
  }
  if (failed_ && !failed_reported_) {
    if (!push(failure_)) return false;
    failed_reported_ = true;
  }
  if (ending_ && open_links_ == 0) return push({.kind = LaneEvent::Kind::kReleased});
  report_due_ = false;
  return false;
}

void LaneSession::publish_missing() noexcept {
  const ChunkSlot& c = chunks_[next_result_ % plan_.slots];
  if (c.state != ChunkState::kFilling) {
    missing_since_.store(0, std::memory_order_relaxed);
    missing_count_.store(0, std::memory_order_relaxed);
    return;
  }
  uint32_t count = 0;
  for (const auto& l : links_) {
    if (l->next_contribution_ > next_result_) continue;
    if (count < kMaxMissing) missing_ranks_[count].store(l->rank_, std::memory_order_relaxed);
    ++count;
  }
  missing_count_.store(count, std::memory_order_relaxed);
  missing_since_.store(c.first_arrival, std::memory_order_relaxed);
}

LaneSession::Missing LaneSession::missing() const noexcept {
  Missing m;
  m.since = missing_since_.load(std::memory_order_relaxed);
  m.count = missing_count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < std::min<size_t>(m.count, kMaxMissing); ++i)
    m.ranks[i] = missing_ranks_[i].load(std::memory_order_relaxed);
  return m;
}

}  // namespace sluice::reducer
