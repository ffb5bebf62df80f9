#include "reducer/lane/lane_session.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "core/assert.h"

namespace sluice::reducer {

LaneSession::LaneSession(const SessionPlan& plan, SlotArena arena)
    : plan_(plan),
      groups_(group_count(plan.ranks)),
      owned_arena_(std::make_shared<const SlotArena>(std::move(arena))),
      arena_(*owned_arena_),
      chunks_(plan.slots),
      put_results_(plan.slots),
      waited_for_(plan.ranks),
      sources_(std::max<size_t>(groups_, kernels::kGroup)),
      tasks_(size_t{plan.slots} * (groups_ + 1)),
      view_{.version = plan.view_version, .hash = plan.view_hash} {
  links_.reserve(plan.ranks);
  for (Rank r = 0; r < plan.ranks; ++r) links_.push_back(std::make_unique<RankLink>(*this, r, view_));
  for (ChunkSlot& c : chunks_) c.group_arrived.resize(groups_);
}

void LaneSession::attach(Rank rank, transport::Endpoint& ep) noexcept {
  RankLink& l = link(rank);
  SLUICE_ASSERT(l.state_ == RankLink::State::kAbsent || (plan_.survives && l.endpoint_ == nullptr));
  l.endpoint_ = &ep;
  l.next_lent_ = l.next_contribution_;
  l.accounted_ = {};
  l.close_reported_ = false;  // and not of one that was replaced in the turn that it closed in
  l.loss_watch_.begin(ep);
  l.state_ = RankLink::State::kAttached;
  l.attached_at_ = now_;
  l.down_since_.store(0, std::memory_order_relaxed);
  ++open_links_;
  counters_->attached.add(1);
}

bool LaneSession::replace(Rank rank, transport::tcp::Socket& socket) noexcept {
  RankLink& l = link(rank);
  if (!plan_.survives || l.endpoint_ == nullptr) return false;
  l.waiting_ = std::move(socket);
  l.endpoint_->close(Errc::kReset);
  return true;
}

std::optional<LaneSession::Takeover> LaneSession::next_takeover() noexcept {
  if (takeovers_due_ == 0) return std::nullopt;
  const auto due = std::ranges::find_if(
      links_, [](const auto& l) { return l->endpoint_ == nullptr && l->waiting_.valid(); });
  SLUICE_ASSERT(due != links_.end());
  --takeovers_due_;
  return Takeover{(*due)->rank_, std::exchange((*due)->waiting_, {})};
}

void LaneSession::never_attached(Rank rank) noexcept {
  RankLink& l = link(rank);
  l.state_ = RankLink::State::kClosed;
  l.close_reason_ = Errc::kSystem;
  l.close_reported_ = false;
  l.down_since_.store(std::max<Nanos>(now_, 1), std::memory_order_relaxed);
  counters_->count_close(Errc::kSystem);
  report_due_ = true;
}

void LaneSession::close_rank(Rank rank) noexcept {
  RankLink& l = link(rank);
  l.drop_waiting();  // attached before this was asked for
  if (l.endpoint_ != nullptr) l.endpoint_->close(Errc::kReset);
}

void LaneSession::result_sent(RankLink& link, transport::Cookie view) noexcept {
  --link.puts_;
  if (view != view_.version) --old_puts_;
}

void LaneSession::link_closed(RankLink& link, Errc reason) noexcept {
  --open_links_;
  counters_->detached.add(1);
  counters_->count_close(reason);
  if (link.waiting_.valid()) ++takeovers_due_;
  report_due_ = true;
  if (plan_.survives && link.beyond_mending(reason) && !link.said_leave_ && !ended()) link.unfit_ = true;
  complete_without_leavers();
}

void LaneSession::end() noexcept {
  ending_ = true;
  report_due_ = true;
  takeovers_due_ = 0;
  if (counters_ != nullptr) operation_.ended(*counters_);
  for (const auto& l : links_) {
    l->drop_waiting();
    if (l->endpoint_ == nullptr) continue;
    if (!abort_body_.empty()) {
      const auto header = wire::control_header(wire::FrameType::kAbort, abort_body_, plan_.handle);
      // Best effort: the control connection carries the same words.
      (void)l->endpoint_->put(header, {}, abort_body_, kControlCookie);
    }
    l->endpoint_->shutdown();
  }
}

void LaneSession::tick(Nanos frame_timeout) noexcept {
  for (const auto& l : links_) {
    if (l->endpoint_ == nullptr) continue;
    l->account();
    // The first connection of a rank waits for the verdict; one that takes its place has RESUME to say at
    // once.
    if (l->committed_ && l->state_ == RankLink::State::kAttached && now_ - l->attached_at_ >= frame_timeout)
      l->endpoint_->close(Errc::kTimeout);
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
    if (l->state_ == RankLink::State::kClosed && !l->close_reported_) {
      if (!push({.kind = LaneEvent::Kind::kClosed, .rank = l->rank_, .code = l->close_reason_})) return false;
      l->close_reported_ = true;
    }
    if (l->unfit_ && !l->unfit_reported_) {
      if (!push({.kind = LaneEvent::Kind::kUnfit, .rank = l->rank_, .code = l->close_reason_})) return false;
      l->unfit_reported_ = true;
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
    if (has_contributed(*l, next_result_)) continue;
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
